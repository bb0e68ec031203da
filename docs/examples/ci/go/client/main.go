// Command client fetches the file and prints its size.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
)

func main() {
	connection, err := net.Dial("tcp", net.JoinHostPort(os.Args[1], os.Args[2]))
	if err != nil {
		log.Fatal(err)
	}
	file, err := io.ReadAll(connection)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("{\"bytes\": %d}\n", len(file))
}
