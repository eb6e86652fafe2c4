"""Adds a flow: add_flow.py SOCKET MATCH ACTIONS. The modules of sluice.v1 are made by `python3 -m grpc_tools.protoc`."""

import sys

import grpc
from sluice.v1 import flow_pb2, flows_pb2, flows_pb2_grpc, match_pb2

socket, match, actions = sys.argv[1:]
flow = flow_pb2.Flow(match=match_pb2.Match(text=match), actions=actions)
add = flows_pb2.Operation(id=1, add=flows_pb2.AddFlow(flow=flow))
with grpc.insecure_channel(f"unix:{socket}") as channel:
    requests = iter([flows_pb2.ApplyRequest(owner="example", operations=[add])])
    for answer in flows_pb2_grpc.FlowsStub(channel).Apply(requests):
        print(answer)
