package main

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"sort"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const shownBody = 2000

var statuses = map[primitive.SendStatus]string{
	primitive.SendOK: "SEND_OK", primitive.SendFlushDiskTimeout: "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT", primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
}

func sent(result *primitive.SendResult) shape {
	return shape{
		"status": statuses[result.Status], "msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID,
		"queueId": result.MessageQueue.QueueId, "brokerName": result.MessageQueue.BrokerName,
		"queueOffset": result.QueueOffset, "transactionId": result.TransactionID,
		"regionId": result.RegionID, "traceOn": result.TraceOn,
	}
}

func told(message *primitive.MessageExt, brokerName string) shape {
	body := ""
	if len(message.Body) <= shownBody {
		body = string(message.Body)
	}
	hash := md5.Sum(message.Body)
	queueId := -1
	if message.Queue != nil {
		queueId = message.Queue.QueueId
		if brokerName == "" {
			brokerName = message.Queue.BrokerName
		}
	}
	return shape{
		"topic": message.Topic, "queueId": queueId, "queueOffset": message.QueueOffset, "brokerName": brokerName,
		"msgId": message.MsgId, "offsetMsgId": message.OffsetMsgId, "transactionId": message.TransactionId,
		"commitLogOffset": message.CommitLogOffset, "reconsumeTimes": message.ReconsumeTimes,
		"bornTimestamp": message.BornTimestamp, "storeTimestamp": message.StoreTimestamp,
		"bornHost": message.BornHost, "storeHost": message.StoreHost, "sysFlag": message.SysFlag,
		"flag": message.Flag, "bodyCRC": message.BodyCRC, "storeSize": message.StoreSize,
		"tags": message.GetTags(), "keys": message.GetKeys(), "properties": message.GetProperties(),
		"size": len(message.Body), "hash": hex.EncodeToString(hash[:]), "body": body,
	}
}

func adminCommands() map[string]command {
	return map[string]command{"create": create, "delete": remove, "topics": topics, "publish": publish}
}

func withAdmin(a arguments, run func(admin.Admin) error) error {
	one, err := admin.NewAdmin(admin.WithResolver(resolver(a)), admin.WithCredentials(a.credentials()))
	if err != nil {
		return err
	}
	defer one.Close()
	return run(one)
}

func create(a arguments) (any, error) {
	return shape{"created": true}, withAdmin(a, func(one admin.Admin) error {
		return one.CreateTopic(context.Background(), admin.WithTopicCreate(a["topic"]),
			admin.WithBrokerAddrCreate(a["address"]), admin.WithReadQueueNums(a.number("queues", 4)),
			admin.WithWriteQueueNums(a.number("queues", 4)))
	})
}

func remove(a arguments) (any, error) {
	return shape{"deleted": true}, withAdmin(a, func(one admin.Admin) error {
		return one.DeleteTopic(context.Background(), admin.WithTopicDelete(a["topic"]),
			admin.WithBrokerAddrDelete(a["address"]), admin.WithNameSrvAddr([]string{a["namesrv"]}))
	})
}

func topics(a arguments) (any, error) {
	var found []string
	err := withAdmin(a, func(one admin.Admin) error {
		list, err := one.FetchAllTopicList(context.Background())
		if err == nil {
			found = list.TopicList
			sort.Strings(found)
		}
		return err
	})
	return shape{"topics": found}, err
}

func publish(a arguments) (any, error) {
	var found []int
	err := withAdmin(a, func(one admin.Admin) error {
		queues, err := one.FetchPublishMessageQueues(context.Background(), a["topic"])
		for _, queue := range queues {
			found = append(found, queue.QueueId)
		}
		sort.Ints(found)
		return err
	})
	return shape{"queues": found}, err
}
