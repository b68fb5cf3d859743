// A Go client that the tests drive: one command per line on stdin, one JSON line per command on stdout.
//
// A command is words separated by tabs: its name, then key=value with URL-encoded values, as in
// ../java/src/Driver.java. Started producers and consumers are kept under the name the command gives.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const longestLine = 8 << 20

type shape = map[string]any

// arguments of one command.
type arguments map[string]string

func parse(words []string) (arguments, error) {
	found := arguments{}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		text, err := url.PathUnescape(value)
		if err != nil {
			return nil, err
		}
		found[key] = text
	}
	return found, nil
}

func (a arguments) has(key string) bool {
	_, found := a[key]
	return found
}

func (a arguments) text(key, otherwise string) string {
	if value, found := a[key]; found {
		return value
	}
	return otherwise
}

func (a arguments) number(key string, otherwise int) int {
	if value, found := a[key]; found {
		number, err := strconv.Atoi(value)
		if err != nil {
			panic(fmt.Sprintf("argument %s: %v", key, err))
		}
		return number
	}
	return otherwise
}

// below gives the arguments whose key starts with the prefix, without it.
func (a arguments) below(prefix string) map[string]string {
	found := map[string]string{}
	for key, value := range a {
		if name, is := strings.CutPrefix(key, prefix); is {
			found[name] = value
		}
	}
	return found
}

type command func(arguments) (any, error)

func main() {
	answers := os.Stdout
	os.Stdout = os.Stderr // what libraries print must not mix with the answers
	rlog.SetLogLevel("warn")
	commands := map[string]command{}
	for _, part := range []map[string]command{producerCommands(), consumerCommands(), adminCommands()} {
		for name, run := range part {
			commands[name] = run
		}
	}
	fmt.Fprintln(answers, `{"ready":true}`)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<16), longestLine)
	for lines.Scan() {
		answer, err := perform(commands, strings.Split(lines.Text(), "\t"))
		if err != nil {
			answer = failed(err)
		}
		line, err := json.Marshal(answer)
		if err != nil {
			line, _ = json.Marshal(failed(err))
		}
		fmt.Fprintln(answers, string(line))
	}
}

func perform(commands map[string]command, words []string) (answer any, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	run, found := commands[words[0]]
	if !found {
		return nil, fmt.Errorf("unknown command %s", words[0])
	}
	given, err := parse(words)
	if err != nil {
		return nil, err
	}
	return run(given)
}

// The client tells a broker's refusal only inside its text.
var refusal = regexp.MustCompile(`(?s)CODE: (\d+), DESC: (.*)`)

func failed(err error) shape {
	told := shape{"error": fmt.Sprintf("%T", err), "text": err.Error(), "rootText": err.Error()}
	if parts := refusal.FindStringSubmatch(err.Error()); parts != nil {
		told["code"], _ = strconv.Atoi(parts[1])
		told["remark"] = parts[2]
	}
	return told
}
