// A pump client in Go, as TiDB's is: it writes transactions to a Pump by TLS, and pulls them back.
//
//	client ADDR CA CERT KEY CLUSTER_ID BASE_TS COUNT
//
// It prints how many came back in order, or the code of the first call that failed.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// plain is a codec of messages that are bytes already: the client needs no generated code.
type plain struct{}

func (plain) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (plain) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (plain) Name() string { return "proto" }
func number(b []byte, f protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, f, protowire.VarintType), v)
}
func text(b []byte, f protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, f, protowire.BytesType), v)
}

// binlog makes a Prewrite (0) or a Commit (1).
func binlog(kind, start, commit uint64) []byte {
	b := number(number(number(nil, 1, kind), 2, start), 3, commit)
	b = text(b, 4, []byte("k"))
	if kind == 0 {
		b = text(b, 5, number(nil, 1, 1))
	}
	return b
}

// field gives the bytes of the first field of a number.
func field(b []byte, wanted protowire.Number) []byte {
	for len(b) > 0 {
		f, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		if f == wanted && kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b[n:])
			return v
		}
		n += protowire.ConsumeFieldValue(f, kind, b[n:])
		b = b[n:]
	}
	return nil
}

// commitTS gives the commit ts of a binlog; 0 for one that tells only a time.
func commitTS(payload []byte) uint64 {
	var start, commit uint64
	for len(payload) > 0 {
		f, kind, n := protowire.ConsumeTag(payload)
		if kind == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(payload[n:])
			if f == 2 {
				start = v
			} else if f == 3 {
				commit = v
			}
		}
		payload = payload[n+protowire.ConsumeFieldValue(f, kind, payload[n:]):]
	}
	if start == commit {
		return 0
	}
	return commit
}

func ended(err error) {
	if err != nil {
		fmt.Println("failed:", status.Code(err))
		os.Exit(0)
	}
}

func main() {
	pem, err := os.ReadFile(os.Args[2])
	ended(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(os.Args[3], os.Args[4])
	ended(err)
	cluster, _ := strconv.ParseUint(os.Args[5], 10, 64)
	base, _ := strconv.ParseUint(os.Args[6], 10, 64)
	count, _ := strconv.Atoi(os.Args[7])
	conn, err := grpc.NewClient(os.Args[1],
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}})),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(plain{})))
	ended(err)
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	var answer []byte
	for i := uint64(1); i <= uint64(count); i++ {
		for kind := uint64(0); kind < 2; kind++ {
			asked := text(number(nil, 1, cluster), 2, binlog(kind, base+10*i, kind*(base+10*i+1)))
			ended(conn.Invoke(ctx, "/binlog.Pump/WriteBinlog", &asked, &answer))
		}
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/binlog.Pump/PullBinlogs")
	ended(err)
	asked := number(nil, 1, cluster)
	ended(stream.SendMsg(&asked))
	ended(stream.CloseSend())
	for came := 1; came <= count; {
		ended(stream.RecvMsg(&answer))
		found := commitTS(field(field(answer, 1), 2))
		if found == 0 {
			continue
		}
		if found != base+uint64(10*came+1) {
			fmt.Println("out of order:", found, "instead of", base+uint64(10*came+1))
			return
		}
		came++
	}
	fmt.Println("came back:", count)
}
