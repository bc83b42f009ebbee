// Go's net/http against both servers; the addresses are the arguments.
package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"time"
)

var client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{ExpectContinueTimeout: 10 * time.Second}}
var reused bool

func ask(method, url string, body io.Reader, fields map[string]string) (*http.Response, string) {
	request, err := http.NewRequest(method, url, body)
	check(err == nil, err)
	for name, value := range fields {
		request.Header.Set(name, value)
	}
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
	answer, err := client.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
	check(err == nil, err)
	content, err := io.ReadAll(answer.Body)
	check(err == nil, err)
	answer.Body.Close()
	return answer, string(content)
}

func check(holds bool, why ...any) {
	if !holds {
		fmt.Println(why...)
		os.Exit(1)
	}
}

// Hides the length, so that the client sends chunks.
type stream struct{ io.Reader }

func main() {
	demo, files := os.Args[1], os.Args[2]
	_, content := ask("GET", demo+"/plaintext", nil, nil)
	check(content == "Hello, World!", content)
	long := strings.Repeat("piece ", 50000)
	_, content = ask("POST", demo+"/echo", stream{strings.NewReader(long)}, nil)
	check(content == long && reused, "chunked", len(content), reused)
	_, content = ask("POST", demo+"/echo", strings.NewReader(long), map[string]string{"Expect": "100-continue"})
	check(content == long, "continue", len(content))
	answer, _ := ask("GET", demo+"/nothing", nil, nil)
	check(answer.StatusCode == 404, answer.Status)

	_, content = ask("GET", files+"/file.txt", nil, nil)
	check(content == "0123456789abcdefghij", content)
	answer, content = ask("HEAD", files+"/file.txt", nil, nil)
	check(answer.ContentLength == 20 && content == "" && reused, answer.ContentLength, reused)
	answer, content = ask("GET", files+"/file.txt", nil, map[string]string{"Range": "bytes=5-9"})
	check(answer.StatusCode == 206 && content == "56789", answer.Status, content)
	answer, content = ask("GET", files+"/story.txt", nil, nil)
	check(answer.Uncompressed && len(content) == 500*len("once upon a time "), len(content))
	fmt.Println("ok")
}
