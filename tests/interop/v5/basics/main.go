// What gRPC itself does, by grpc-go at a port: unary calls under load for some seconds, a stream, a cancel, a deadline.
//
// usage: basics ADDRESS SECONDS. The last line is JSON; connections that the server dropped are counted.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

var dialled atomic.Int64

func dial(address string) *grpc.ClientConn {
	counting := func(ctx context.Context, where string) (net.Conn, error) {
		dialled.Add(1)
		return (&net.Dialer{}).DialContext(ctx, "tcp", where)
	}
	found, err := grpc.Dial(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(counting))
	if err != nil {
		panic(err)
	}
	return found
}

func as(ctx context.Context, id string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "x-mq-client-id", id, "x-mq-language", "GO", "x-mq-protocol", "v2")
}

func main() {
	address, topic := os.Args[1], "T_basics"
	seconds, _ := strconv.Atoi(os.Args[2])
	host, port, _ := net.SplitHostPort(address)
	number, _ := strconv.Atoi(port)
	where := &v2.Endpoints{Scheme: v2.AddressScheme_IPv4, Addresses: []*v2.Address{{Host: host, Port: int32(number)}}}
	var calls, failures atomic.Int64
	var first atomic.Value
	var all sync.WaitGroup
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	const connections, each = 4, 8
	body := make([]byte, 64<<10) // large enough for grpc-go to measure the bandwidth with pings
	for c := 0; c < connections; c++ {
		client := v2.NewMessagingServiceClient(dial(address))
		for i := 0; i < each; i++ {
			all.Add(1)
			go func(c, i int) {
				defer all.Done()
				for n := 0; time.Now().Before(end); n++ {
					ctx, cancel := context.WithTimeout(as(context.Background(), fmt.Sprintf("basics-%d", c)), 20*time.Second)
					var err error
					if n%8 == 0 {
						id := fmt.Sprintf("01%04X%04X%024X", c, i, n)
						message := &v2.Message{Topic: &v2.Resource{Name: topic}, Body: body,
							SystemProperties: &v2.SystemProperties{MessageId: id, MessageType: v2.MessageType_NORMAL, BodyEncoding: v2.Encoding_IDENTITY}}
						_, err = client.SendMessage(ctx, &v2.SendMessageRequest{Messages: []*v2.Message{message}})
					} else {
						_, err = client.QueryRoute(ctx, &v2.QueryRouteRequest{Topic: &v2.Resource{Name: topic}, Endpoints: where})
					}
					cancel()
					calls.Add(1)
					if err != nil {
						failures.Add(1)
						first.CompareAndSwap(nil, err.Error())
					}
				}
			}(c, i)
		}
	}
	all.Wait()
	said := map[string]any{"calls": calls.Load(), "failures": failures.Load(), "dialled": dialled.Load(), "connections": connections}
	if text := first.Load(); text != nil {
		said["first"] = text
	}
	client := v2.NewMessagingServiceClient(dial(address))
	said["deadline"], said["deadlineMs"] = poll(client, where, 300*time.Millisecond, false)
	said["cancel"], said["cancelMs"] = poll(client, where, 300*time.Millisecond, true)
	line, _ := json.Marshal(said)
	fmt.Println(string(line))
}

// A receive of nothing, given up after a while by the client: the code it sees, and after how long.
func poll(client v2.MessagingServiceClient, where *v2.Endpoints, after time.Duration, cancelled bool) (string, int64) {
	ctx, cancel := context.WithTimeout(as(context.Background(), "basics-poll"), 20*time.Second)
	defer cancel()
	begin := time.Now()
	if cancelled {
		time.AfterFunc(after, cancel)
	} else {
		ctx, cancel = context.WithTimeout(as(context.Background(), "basics-poll"), after)
		defer cancel()
	}
	stream, err := client.ReceiveMessage(ctx, &v2.ReceiveMessageRequest{
		Group: &v2.Resource{Name: "G_basics"}, BatchSize: 1, AutoRenew: true,
		MessageQueue: &v2.MessageQueue{Topic: &v2.Resource{Name: "T_basics_empty"}, Id: -1,
			Broker: &v2.Broker{Name: "broker-a", Endpoints: where}},
		FilterExpression: &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"},
	})
	for err == nil {
		_, err = stream.Recv()
	}
	if code := status.Code(err); code != codes.Unknown {
		return code.String(), time.Since(begin).Milliseconds()
	}
	return err.Error(), time.Since(begin).Milliseconds()
}
