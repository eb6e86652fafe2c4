// Adds a flow: add_flow SOCKET MATCH ACTIONS. The package of sluice.v1 is made by `protoc --go_out`.
package main

import (
	"context"
	"fmt"
	"google.golang.org/grpc"
	"os"
	v1 "sluice/v1"
)

func main() {
	flow := &v1.Flow{Match: &v1.Match{Form: &v1.Match_Text{Text: os.Args[2]}}, Actions: os.Args[3]}
	add := &v1.Operation{Id: 1, Change: &v1.Operation_Add{Add: &v1.AddFlow{Flow: flow}}}
	request := &v1.ApplyRequest{Owner: "example", Operations: []*v1.Operation{add}}
	channel, _ := grpc.Dial("unix:"+os.Args[1], grpc.WithInsecure())
	stream, err := v1.NewFlowsClient(channel).Apply(context.Background())
	for answer := new(v1.ApplyResponse); err == nil; answer, err = stream.Recv() {
		if fmt.Println(answer); answer.Answer == nil && stream.Send(request) == nil {
			stream.CloseSend()
		}
	}
}
