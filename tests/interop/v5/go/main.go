// Apache's v5 client for Go as a program the tests drive: a command a line, a line of JSON an answer.
//
// The commands are the same in every language (../../v5.py).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	mq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type shape = map[string]any
type arguments map[string]string

var (
	producers = map[string]mq.Producer{}
	consumers = map[string]mq.SimpleConsumer{}
	views     = map[string]*mq.MessageView{}
	lock      sync.Mutex
	seen      = map[string][]shape{}
)

func (a arguments) number(key string, otherwise int) int {
	if number, err := strconv.Atoi(a[key]); err == nil {
		return number
	}
	return otherwise
}

func main() {
	answers := os.Stdout
	os.Stdout = os.Stderr
	mq.ResetLogger()
	fmt.Fprintln(answers, `{"ready":true}`)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		given := arguments{}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			given[key], _ = url.PathUnescape(value)
		}
		answer, err := perform(words[0], given)
		if err != nil {
			answer = shape{"error": fmt.Sprintf("%T", err), "text": err.Error(), "rootText": err.Error()}
			if status, is := mq.AsErrRpcStatus(err); is {
				answer["code"] = status.GetCode()
			}
		}
		line, _ := json.Marshal(answer)
		fmt.Fprintln(answers, string(line))
	}
}

func perform(command string, a arguments) (answer shape, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	name := a["name"]
	switch command {
	case "producer":
		return producer(a)
	case "send":
		return send(a)
	case "transaction":
		return transaction(a)
	case "simple":
		return simple(a)
	case "receive":
		return receive(a)
	case "ack":
		return shape{"done": true}, consumers[name].Ack(context.TODO(), views[a["msgId"]])
	case "change":
		duration := time.Duration(a.number("invisible", 10)) * time.Second
		return shape{"done": true}, consumers[name].ChangeInvisibleDuration(views[a["msgId"]], duration)
	case "dump":
		end := time.Now().Add(time.Duration(a.number("timeout", 0)) * time.Millisecond)
		for {
			lock.Lock()
			found := append([]shape{}, seen[name]...)
			lock.Unlock()
			if len(found) >= a.number("min", 0) || time.Now().After(end) {
				return shape{"messages": found}, nil
			}
			time.Sleep(10 * time.Millisecond)
		}
	case "stop":
		if found, is := producers[name]; is {
			delete(producers, name)
			return shape{"done": true}, found.GracefulStop()
		}
		found := consumers[name]
		delete(consumers, name)
		return shape{"done": true}, found.GracefulStop()
	}
	return nil, fmt.Errorf("unknown command %s", command)
}

func configuration(a arguments) *mq.Config {
	return &mq.Config{
		Endpoint: a["endpoints"], NameSpace: a["namespace"], ConsumerGroup: a["group"],
		Credentials: &credentials.SessionCredentials{AccessKey: a["accessKey"], AccessSecret: a["secretKey"]},
	}
}

func producer(a arguments) (shape, error) {
	name := a["name"]
	checker := &mq.TransactionChecker{Check: func(view *mq.MessageView) mq.TransactionResolution {
		lock.Lock()
		seen[name] = append(seen[name], told(view))
		lock.Unlock()
		switch a["check"] {
		case "COMMIT":
			return mq.COMMIT
		case "ROLLBACK":
			return mq.ROLLBACK
		}
		return mq.UNKNOWN
	}}
	made, err := mq.NewProducer(configuration(a), mq.WithTopics(a["topic"]), mq.WithTransactionChecker(checker))
	if err == nil {
		err = made.Start()
	}
	producers[name] = made
	return shape{"done": true}, err
}

func message(a arguments, i int) *mq.Message {
	body := a["body"]
	if body == "" {
		body = "m"
	}
	made := &mq.Message{Topic: a["topic"], Body: []byte(fmt.Sprintf("%s-%d", body, i))}
	if a["tag"] != "" {
		made.SetTag(a["tag"])
	}
	if a["key"] != "" {
		made.SetKeys(a["key"])
	}
	if a["order"] != "" {
		made.SetMessageGroup(a["order"])
	}
	if a["delay"] != "" {
		made.SetDelayTimestamp(time.Now().Add(time.Duration(a.number("delay", 0)) * time.Millisecond))
	}
	for key, value := range a {
		if property, is := strings.CutPrefix(key, "property."); is {
			made.AddProperty(property, value)
		}
	}
	return made
}

func send(a arguments) (shape, error) {
	results := []shape{}
	for i := 0; i < a.number("count", 1); i++ {
		receipts, err := producers[a["name"]].Send(context.TODO(), message(a, i))
		if err != nil {
			return nil, err
		}
		for _, receipt := range receipts {
			results = append(results, shape{"msgId": receipt.MessageID})
		}
	}
	return shape{"results": results}, nil
}

func transaction(a arguments) (shape, error) {
	producer := producers[a["name"]]
	begun := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(context.TODO(), message(a, 0), begun)
	if err != nil {
		return nil, err
	}
	switch a["end"] {
	case "commit":
		err = begun.Commit()
	case "rollback":
		err = begun.RollBack()
	}
	return shape{"msgId": receipts[0].MessageID}, err
}

func simple(a arguments) (shape, error) {
	filter := mq.SUB_ALL
	if a["sql"] != "" {
		filter = mq.NewFilterExpressionWithType(a["sql"], mq.SQL92)
	} else if a["tags"] != "" {
		filter = mq.NewFilterExpression(a["tags"])
	}
	made, err := mq.NewSimpleConsumer(configuration(a),
		mq.WithAwaitDuration(time.Duration(a.number("await", 5))*time.Second),
		mq.WithSubscriptionExpressions(map[string]*mq.FilterExpression{a["topic"]: filter}))
	if err == nil {
		err = made.Start()
	}
	consumers[a["name"]] = made
	return shape{"done": true}, err
}

func receive(a arguments) (shape, error) {
	invisible := time.Duration(a.number("invisible", 20)) * time.Second
	found, err := consumers[a["name"]].Receive(context.TODO(), int32(a.number("count", 16)), invisible)
	if status, is := mq.AsErrRpcStatus(err); is && status.GetCode() == 40401 {
		return shape{"messages": []shape{}}, nil // the client's way to say that there is nothing
	}
	if err != nil {
		return nil, err
	}
	messages := []shape{}
	for _, view := range found {
		views[view.GetMessageId()] = view
		messages = append(messages, told(view))
	}
	return shape{"messages": messages}, nil
}

func told(view *mq.MessageView) shape {
	return shape{
		"body": string(view.GetBody()), "msgId": view.GetMessageId(), "topic": view.GetTopic(),
		"tag": view.GetTag(), "keys": view.GetKeys(), "order": view.GetMessageGroup(),
		"properties": view.GetProperties(), "attempt": view.GetDeliveryAttempt(),
		"bornHost": view.GetBornHost(), "at": time.Now().UnixMilli(),
	}
}
