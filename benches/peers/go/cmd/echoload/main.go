// Command echoload keeps a number of unary calls in flight for a while and prints one JSON line about them.
//
// Latencies are in microseconds. Calls that end during the warm-up are not measured; "calls" counts them all.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"weft.invalid/bench/peers/echopb"
)

// nUsers is how many users take turns; the chains deny one of them, so 1 % of the calls.
const nUsers = 100

// nBodyBytes is the size of the echoed body.
const nBodyBytes = 16

// caller sends one call after the other and remembers how they ended.
type caller struct {
	client    echopb.EchoClient
	latencies []time.Duration
	statuses  map[string]int
	nCalls    int
}

// report is what is printed.
type report struct {
	CallsPerS float64        `json:"calls_per_s"`
	Calls     int            `json:"calls"`
	Measured  int            `json:"measured"`
	MeanUs    float64        `json:"mean_us"`
	P50Us     float64        `json:"p50_us"`
	P99Us     float64        `json:"p99_us"`
	Statuses  map[string]int `json:"statuses"`
}

func main() {
	target := flag.String("target", "127.0.0.1:7151", "address to call")
	nInFlight := flag.Int("in-flight", 128, "calls in flight")
	nConnections := flag.Int("connections", 1, "connections")
	duration := flag.Duration("duration", 5*time.Second, "time to measure")
	warmUp := flag.Duration("warm-up", time.Second, "time before it")
	flag.Parse()

	callers := make([]caller, *nInFlight)
	clients := connect(*target, *nConnections)
	for i := range callers {
		callers[i] = caller{client: clients[i%len(clients)], statuses: map[string]int{}}
	}
	var measuring, stopped atomic.Bool
	var running sync.WaitGroup
	for i := range callers {
		running.Go(func() { callers[i].run(i, &measuring, &stopped) })
	}
	time.Sleep(*warmUp)
	start := time.Now()
	measuring.Store(true)
	time.Sleep(*duration)
	measuring.Store(false)
	seconds := time.Since(start).Seconds()
	stopped.Store(true)
	running.Wait()

	sum := sumUp(callers, seconds)
	if err := json.NewEncoder(os.Stdout).Encode(sum); err != nil {
		log.Fatal(err)
	}
	if sum.Measured == 0 {
		log.Fatal("no call ended")
	}
}

func connect(target string, n int) []echopb.EchoClient {
	var clients []echopb.EchoClient
	for range n {
		connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			log.Fatal(err)
		}
		clients = append(clients, echopb.NewEchoClient(connection))
	}
	return clients
}

func (c *caller) run(first int, measuring, stopped *atomic.Bool) {
	body := bytes.Repeat([]byte("x"), nBodyBytes)
	for turn := first; !stopped.Load(); turn++ {
		user := fmt.Sprintf("u%d", turn%nUsers)
		ctx := metadata.AppendToOutgoingContext(context.Background(), "user", user)
		start := time.Now()
		reply, err := c.client.Echo(ctx, &echopb.Msg{User: user, Body: body})
		c.nCalls++
		if !measuring.Load() {
			continue
		}
		c.latencies = append(c.latencies, time.Since(start))
		name := status.Code(err).String()
		if err == nil && !bytes.Equal(reply.Body, body) {
			name = "WrongEcho"
		}
		c.statuses[name]++
	}
}

func sumUp(callers []caller, seconds float64) report {
	sum := report{Statuses: map[string]int{}}
	var latencies []time.Duration
	for _, c := range callers {
		latencies = append(latencies, c.latencies...)
		sum.Calls += c.nCalls
		for name, n := range c.statuses {
			sum.Statuses[name] += n
		}
	}
	sum.Measured = len(latencies)
	if sum.Measured == 0 {
		return sum
	}
	slices.Sort(latencies)
	var total time.Duration
	for _, latency := range latencies {
		total += latency
	}
	us := func(latency time.Duration) float64 { return float64(latency.Nanoseconds()) / 1000 }
	sum.CallsPerS = float64(sum.Measured) / seconds
	sum.MeanUs = us(total) / float64(sum.Measured)
	sum.P50Us = us(latencies[sum.Measured/2])
	sum.P99Us = us(latencies[sum.Measured*99/100])
	return sum
}
