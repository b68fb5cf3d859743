package main

import (
	"context"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func consumerCommands() map[string]command {
	return map[string]command{
		"consumer": startPush, "dump": dump, "stop": stop,
		"lite": startPull, "poll": poll, "pull": pullFrom, "commit": commit,
	}
}

// push is a push consumer and all it was given, in the order of arrival.
type push struct {
	consumer  rocketmq.PushConsumer
	lock      sync.Mutex
	seen      []any
	failUntil int
	orderly   bool
	replier   string
}

var pushing = map[string]*push{}

func consumerOptions(a arguments, kind string) []consumer.Option {
	where := consumer.ConsumeFromFirstOffset
	if a["from"] == "CONSUME_FROM_LAST_OFFSET" {
		where = consumer.ConsumeFromLastOffset
	}
	options := []consumer.Option{
		consumer.WithNsResolver(resolver(a)),
		consumer.WithGroupName(a["group"]),
		consumer.WithInstance(kind + "-" + a["name"]),
		consumer.WithConsumeFromWhere(where),
		consumer.WithConsumeMessageBatchMaxSize(a.number("batch", 1)),
		consumer.WithConsumerOrder(a.has("orderly")),
	}
	if a["model"] == "broadcasting" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if a.has("maxReconsume") {
		options = append(options, consumer.WithMaxReconsumeTimes(int32(a.number("maxReconsume", -1))))
	}
	if a.has("accessKey") {
		options = append(options, consumer.WithCredentials(a.credentials()))
	}
	if a.has("namespace") {
		options = append(options, consumer.WithNamespace(a["namespace"]))
	}
	if a.has("strategy") {
		options = append(options, consumer.WithStrategy(strategy(a)))
	}
	if a.has("trace") {
		options = append(options, consumer.WithTrace(&primitive.TraceConfig{
			GroupName: a["group"], Access: primitive.Local, Resolver: resolver(a), Credentials: a.credentials(),
		}))
	}
	return options
}

// strategy is the client's own of that name. Its consistent hash and its machine room nearby differ from Java's.
func strategy(a arguments) consumer.AllocateStrategy {
	switch a["strategy"] {
	case "AVG":
		return consumer.AllocateByAveragely
	case "AVG_BY_CIRCLE":
		return consumer.AllocateByAveragelyCircle
	case "CONFIG":
		queues := []*primitive.MessageQueue{}
		for _, text := range strings.Split(a["queues"], ";") {
			parts := strings.Split(text, ",")
			id, err := strconv.Atoi(parts[2])
			if err != nil {
				panic(err)
			}
			queues = append(queues, &primitive.MessageQueue{Topic: parts[0], BrokerName: parts[1], QueueId: id})
		}
		return consumer.AllocateByConfig(queues)
	case "MACHINE_ROOM":
		return consumer.AllocateByMachineRoom(strings.Split(a["rooms"], ","))
	}
	panic("strategy " + a["strategy"])
}

func selector(a arguments) consumer.MessageSelector {
	if a.has("sql") {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: a["sql"]}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: a.text("expression", "*")}
}

func startPush(a arguments) (any, error) {
	made, err := rocketmq.NewPushConsumer(consumerOptions(a, "consumer")...)
	if err != nil {
		return nil, err
	}
	one := &push{consumer: made, failUntil: a.number("failUntil", 0), orderly: a.has("orderly"), replier: a["replier"]}
	if err = made.Subscribe(a["topic"], selector(a), one.take); err != nil {
		return nil, err
	}
	if err = made.Start(); err != nil {
		return nil, err
	}
	pushing[a["name"]] = one
	return shape{"started": true}, nil
}

// take records the messages; those with too few tries count as failed.
func (p *push) take(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	fine := true
	p.lock.Lock()
	for _, message := range messages {
		p.seen = append(p.seen, told(message, brokerOf(ctx)))
		fine = fine && int(message.ReconsumeTimes) >= p.failUntil
	}
	p.lock.Unlock()
	if p.replier != "" {
		for _, message := range messages {
			if err := answer(p.replier, message); err != nil {
				return consumer.ConsumeRetryLater, err
			}
		}
	}
	switch {
	case fine:
		return consumer.ConsumeSuccess, nil
	case p.orderly:
		if context, found := primitive.GetOrderlyCtx(ctx); found {
			context.SuspendCurrentQueueTimeMillis = 100
		}
		return consumer.SuspendCurrentQueueAMoment, nil
	default:
		return consumer.ConsumeRetryLater, nil
	}
}

func brokerOf(ctx context.Context) string {
	if given, found := primitive.GetConsumerCtx(ctx); found {
		return given.MQ.BrokerName
	}
	return ""
}

// answer replies to a request; the client's own reply message has no body, so we set it.
func answer(replier string, to *primitive.MessageExt) error {
	by, found := producers[replier]
	if !found {
		return fmt.Errorf("no producer %s", replier)
	}
	body := []byte("re:" + string(to.Body))
	reply, err := consumer.CreateReplyMessage(to, body)
	if err != nil {
		return err
	}
	reply.Body = body
	_, err = by.SendSync(context.Background(), reply)
	return err
}

func pushOf(a arguments) (*push, error) {
	if found, is := pushing[a["name"]]; is {
		return found, nil
	}
	return nil, fmt.Errorf("no consumer %s", a["name"])
}

// dump tells what a push consumer has seen and which queues it has, once `min` messages are there or time is up.
func dump(a arguments) (any, error) {
	one, err := pushOf(a)
	if err != nil {
		return nil, err
	}
	counted := func() int { one.lock.Lock(); defer one.lock.Unlock(); return len(one.seen) }
	for end := deadline(a); counted() < a.number("min", 0) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if a.has("nudge") { // not wait 20 s for the next rebalance
		one.consumer.(interface{ Rebalance() }).Rebalance()
	}
	queues := queuesOf(one.consumer)
	one.lock.Lock()
	defer one.lock.Unlock()
	return shape{"messages": append([]any{}, one.seen...), "queues": queues}, nil
}

// queuesOf asks the consumer as the broker would (GET_CONSUMER_RUNNING_INFO); the answer's type is internal.
func queuesOf(one rocketmq.PushConsumer) []string {
	info := reflect.ValueOf(one).MethodByName("GetConsumerRunningInfo").Call([]reflect.Value{reflect.ValueOf(false)})
	held := []string{}
	for _, key := range info[0].Elem().FieldByName("MQTable").MapKeys() {
		queue := key.Interface().(primitive.MessageQueue)
		held = append(held, fmt.Sprintf("%s@%s@%d", queue.Topic, queue.BrokerName, queue.QueueId))
	}
	sort.Strings(held)
	return held
}

func stop(a arguments) (any, error) {
	if one, is := pushing[a["name"]]; is {
		delete(pushing, a["name"])
		return shape{"stopped": true}, one.consumer.Shutdown()
	}
	if one, is := pulling[a["name"]]; is {
		delete(pulling, a["name"])
		return shape{"stopped": true}, one.Shutdown()
	}
	return nil, fmt.Errorf("no consumer %s", a["name"])
}

var pulling = map[string]rocketmq.PullConsumer{}

func startPull(a arguments) (any, error) {
	made, err := rocketmq.NewPullConsumer(consumerOptions(a, "lite")...)
	if err != nil {
		return nil, err
	}
	if err = made.Subscribe(a["topic"], selector(a)); err != nil {
		return nil, err
	}
	if err = made.Start(); err != nil {
		return nil, err
	}
	pulling[a["name"]] = made
	return shape{"started": true}, nil
}

func pullOf(a arguments) (rocketmq.PullConsumer, error) {
	if found, is := pulling[a["name"]]; is {
		return found, nil
	}
	return nil, fmt.Errorf("no pull consumer %s", a["name"])
}

// poll takes what the consumer prefetched until `min` messages came, and acknowledges it.
func poll(a arguments) (any, error) {
	one, err := pullOf(a)
	if err != nil {
		return nil, err
	}
	result := consumer.ConsumeSuccess
	if a.has("fail") {
		result = consumer.ConsumeRetryLater
	}
	found := []any{}
	for end := deadline(a); len(found) < a.number("min", 1) && time.Now().Before(end); {
		polled, err := one.Poll(context.Background(), 200*time.Millisecond)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, message := range polled.GetMsgList() {
			found = append(found, told(message, polled.GetMQ().BrokerName))
		}
		one.ACK(context.Background(), polled, result)
	}
	return shape{"messages": found}, nil
}

func queueOf(a arguments) *primitive.MessageQueue {
	return &primitive.MessageQueue{Topic: a["topic"], BrokerName: a["brokerName"], QueueId: a.number("queue", 0)}
}

var pullStatus = map[primitive.PullStatus]string{
	primitive.PullFound: "FOUND", primitive.PullNoNewMsg: "NO_NEW_MSG",
	primitive.PullNoMsgMatched: "NO_MATCHED_MSG", primitive.PullOffsetIllegal: "OFFSET_ILLEGAL",
	primitive.PullBrokerTimeout: "BROKER_TIMEOUT",
}

// pullFrom is one pull of a queue at an offset.
func pullFrom(a arguments) (any, error) {
	one, err := pullOf(a)
	if err != nil {
		return nil, err
	}
	result, err := one.PullFrom(context.Background(), queueOf(a), int64(a.number("offset", 0)), a.number("count", 32))
	if err != nil {
		return nil, err
	}
	found := []any{}
	for _, message := range result.GetMessageExts() {
		found = append(found, told(message, a["brokerName"]))
	}
	return shape{
		"status": pullStatus[result.Status], "messages": found,
		"next": result.NextBeginOffset, "min": result.MinOffset, "max": result.MaxOffset,
	}, nil
}

// commit sets the group's offset of a queue and sends it to the broker.
func commit(a arguments) (any, error) {
	one, err := pullOf(a)
	if err != nil {
		return nil, err
	}
	if err = one.UpdateOffset(queueOf(a), int64(a.number("offset", 0))); err != nil {
		return nil, err
	}
	return shape{"committed": true}, one.PersistOffset(context.Background(), a["topic"])
}
