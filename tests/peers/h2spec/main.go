// h2spec as the tests run it: the pinned module's cases against a port; the report is written as JUnit does.
//
//	h2spec PORT PATH REPORT SECONDS SECTION...
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"
)

func main() {
	port, err := strconv.Atoi(os.Args[1])
	seconds, bad := strconv.Atoi(os.Args[4])
	if err == nil && bad == nil {
		_, err = h2spec.Run(&config.Config{
			Host: "127.0.0.1", Port: port, Path: os.Args[2], JUnitReport: os.Args[3],
			Timeout: time.Duration(seconds) * time.Second, MaxHeaderLen: 4000,
			Strict: true, Sections: os.Args[5:],
		})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
