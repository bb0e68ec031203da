// Command server sends a file to each client.
package main

import (
	"log"
	"net"
	"os"
)

const sizeBytes = 20_000

func main() {
	listener, err := net.Listen("tcp", net.JoinHostPort(os.Args[1], os.Args[2]))
	if err != nil {
		log.Fatal(err)
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		if _, err := connection.Write(make([]byte, sizeBytes)); err != nil {
			log.Print(err)
		}
		connection.Close()
	}
}
