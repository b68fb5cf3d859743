package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const callbacksWithin = 30 * time.Second

var producers = map[string]rocketmq.Producer{}

func producerCommands() map[string]command {
	return map[string]command{
		"producer": startProducer, "send": send, "drop": dropProducer, "request": request,
		"tproducer": startTransactionProducer, "transact": transact, "checks": checks, "tdrop": dropTransactionProducer,
	}
}

// credentials are what the client signs with; empty, it does not.
func (a arguments) credentials() primitive.Credentials {
	return primitive.Credentials{
		AccessKey: a["accessKey"], SecretKey: a["secretKey"], SecurityToken: a["securityToken"],
	}
}

func resolver(a arguments) primitive.NsResolver {
	return primitive.NewPassthroughResolver(strings.Split(a["namesrv"], ";"))
}

func producerOptions(a arguments) []producer.Option {
	options := []producer.Option{
		producer.WithNsResolver(resolver(a)),
		producer.WithGroupName(a.text("group", "PG_"+a["name"])),
		producer.WithInstanceName("producer-" + a["name"]),
		producer.WithRetry(a.number("retries", 2)),
		producer.WithSendMsgTimeout(20 * time.Second), // the default of 3 s is what a busy machine may take
	}
	if a.has("accessKey") {
		options = append(options, producer.WithCredentials(a.credentials()))
	}
	if a.has("namespace") {
		options = append(options, producer.WithNamespace(a["namespace"]))
	}
	if a.has("queue") {
		options = append(options, producer.WithQueueSelector(producer.NewManualQueueSelector()))
	}
	if a.has("hash") {
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	if a.has("compressOver") {
		options = append(options, producer.WithCompressMsgBodyOverHowmuch(a.number("compressOver", 4096)))
	}
	if a.has("trace") {
		options = append(options, producer.WithTrace(&primitive.TraceConfig{
			GroupName: a.text("group", "PG_"+a["name"]), Access: primitive.Local, Resolver: resolver(a), Credentials: a.credentials(),
		}))
	}
	return options
}

func startProducer(a arguments) (any, error) {
	started, err := rocketmq.NewProducer(producerOptions(a)...)
	if err != nil {
		return nil, err
	}
	if err = started.Start(); err != nil {
		return nil, err
	}
	producers[a["name"]] = started
	return shape{"started": true}, nil
}

func dropProducer(a arguments) (any, error) {
	found, err := producerOf(a)
	if err != nil {
		return nil, err
	}
	delete(producers, a["name"])
	return shape{"dropped": true}, found.Shutdown()
}

func producerOf(a arguments) (rocketmq.Producer, error) {
	if found, is := producers[a["name"]]; is {
		return found, nil
	}
	return nil, fmt.Errorf("no producer %s", a["name"])
}

// messages 0..count-1; the body is "body-i", or size bytes of a repeated text.
func messages(a arguments) []*primitive.Message {
	var made []*primitive.Message
	for i := 0; i < a.number("count", 1); i++ {
		body := []byte(fmt.Sprintf("%s-%d", a.text("body", "m"), a.number("first", 0)+i))
		if a.has("size") {
			body = make([]byte, a.number("size", 0))
			for at := range body {
				body[at] = byte('a' + at%26)
			}
		}
		message := primitive.NewMessage(a["topic"], body)
		if a.has("tags") {
			tags := strings.Split(a["tags"], ",")
			message.WithTag(tags[i%len(tags)])
		}
		if a.has("keys") {
			message.WithKeys([]string{fmt.Sprintf("%s-%d", a["keys"], i)})
		}
		if a.has("delay") {
			message.WithDelayTimeLevel(a.number("delay", 0))
		}
		if a.has("sharding") {
			message.WithShardingKey(a["sharding"])
		}
		if a.has("queue") {
			message.Queue = &primitive.MessageQueue{
				Topic: a["topic"], BrokerName: a["brokerName"], QueueId: a.number("queue", 0),
			}
		}
		for key, value := range a.below("property.") {
			message.WithProperty(key, value)
		}
		made = append(made, message)
	}
	return made
}

func send(a arguments) (any, error) {
	by, err := producerOf(a)
	if err != nil {
		return nil, err
	}
	results := []any{}
	switch mode := a.text("mode", "sync"); mode {
	case "batch":
		result, err := by.SendSync(context.Background(), messages(a)...)
		if err != nil {
			return nil, err
		}
		results = append(results, sent(result))
	case "async":
		if results, err = sendAsync(by, messages(a)); err != nil {
			return nil, err
		}
	default:
		for _, message := range messages(a) {
			if mode == "oneway" {
				if err := by.SendOneWay(context.Background(), message); err != nil {
					return nil, err
				}
				continue
			}
			result, err := by.SendSync(context.Background(), message)
			if err != nil {
				return nil, err
			}
			results = append(results, sent(result))
		}
	}
	return shape{"results": results}, nil
}

func sendAsync(by rocketmq.Producer, all []*primitive.Message) ([]any, error) {
	var lock sync.Mutex
	var open sync.WaitGroup
	results := []any{}
	for _, message := range all {
		open.Add(1)
		err := by.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				results = append(results, failed(err))
			} else {
				results = append(results, sent(result))
			}
			open.Done()
		}, message)
		if err != nil {
			return nil, err
		}
	}
	done := make(chan struct{})
	go func() { open.Wait(); close(done) }()
	select {
	case <-done:
		return results, nil
	case <-time.After(callbacksWithin):
		return nil, fmt.Errorf("callbacks did not come")
	}
}

// request sends one message and waits for its reply.
func request(a arguments) (any, error) {
	by, err := producerOf(a)
	if err != nil {
		return nil, err
	}
	within := time.Duration(a.number("timeout", 10000)) * time.Millisecond
	reply, err := by.Request(context.Background(), within, messages(a)[0])
	if err != nil {
		return nil, err
	}
	return shape{"body": string(reply.Body), "properties": reply.GetProperties()}, nil
}

// transactions is a transaction producer whose messages say themselves how their transaction ends:
// property "local" for the first answer, "check" for every later one.
type transactions struct {
	producer rocketmq.TransactionProducer
	lock     sync.Mutex
	checked  []any
}

var transacting = map[string]*transactions{}

func outcome(word string) primitive.LocalTransactionState {
	switch word {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	default:
		return primitive.UnknowState
	}
}

func (t *transactions) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return outcome(message.GetProperty("local"))
}

func (t *transactions) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.checked = append(t.checked, told(message, ""))
	return outcome(message.GetProperty("check"))
}

func startTransactionProducer(a arguments) (any, error) {
	made := &transactions{}
	started, err := rocketmq.NewTransactionProducer(made, producerOptions(a)...)
	if err != nil {
		return nil, err
	}
	if err = started.Start(); err != nil {
		return nil, err
	}
	made.producer = started
	transacting[a["name"]] = made
	return shape{"started": true}, nil
}

func transact(a arguments) (any, error) {
	by, is := transacting[a["name"]]
	if !is {
		return nil, fmt.Errorf("no transaction producer %s", a["name"])
	}
	results := []any{}
	for _, message := range messages(a) {
		result, err := by.producer.SendMessageInTransaction(context.Background(), message)
		if err != nil {
			return nil, err
		}
		results = append(results, sent(result.SendResult))
	}
	return shape{"results": results}, nil
}

// checks waits until `min` check-backs came and tells them.
func checks(a arguments) (any, error) {
	by, is := transacting[a["name"]]
	if !is {
		return nil, fmt.Errorf("no transaction producer %s", a["name"])
	}
	counted := func() int { by.lock.Lock(); defer by.lock.Unlock(); return len(by.checked) }
	for end := deadline(a); counted() < a.number("min", 0) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	by.lock.Lock()
	defer by.lock.Unlock()
	return shape{"messages": append([]any{}, by.checked...)}, nil
}

func dropTransactionProducer(a arguments) (any, error) {
	by, is := transacting[a["name"]]
	if !is {
		return nil, fmt.Errorf("no transaction producer %s", a["name"])
	}
	delete(transacting, a["name"])
	return shape{"dropped": true}, by.producer.Shutdown()
}

func deadline(a arguments) time.Time {
	return time.Now().Add(time.Duration(a.number("timeout", 0)) * time.Millisecond)
}
