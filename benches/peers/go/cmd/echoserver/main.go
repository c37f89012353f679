// Command echoserver answers each call with the message that it got.
package main

import (
	"context"
	"flag"
	"log"
	"net"

	"google.golang.org/grpc"
	"weft.invalid/bench/peers/echopb"
)

// streamsMax is how many calls one connection may have in flight.
const streamsMax = 1000

type server struct{ echopb.UnimplementedEchoServer }

func (server) Echo(_ context.Context, msg *echopb.Msg) (*echopb.Msg, error) { return msg, nil }

func main() {
	listen := flag.String("listen", "127.0.0.1:7151", "address to listen on")
	flag.Parse()
	socket, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	grpcServer := grpc.NewServer(grpc.MaxConcurrentStreams(streamsMax))
	echopb.RegisterEchoServer(grpcServer, server{})
	log.Fatal(grpcServer.Serve(socket))
}
