package main

import (
	"io"
	"net/http"
	"os"
)

func main() {
	body := []byte("Hello, World!")
	mux := http.NewServeMux()
	mux.HandleFunc("/plaintext", func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/plain")
		h.Set("Server", "go")
		w.Write(body)
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err == nil {
			w.Write(content)
		}
	})
	if root := os.Getenv("ROOT"); root != "" {
		mux.Handle("/", http.FileServer(http.Dir(root)))
	}
	panic(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), mux))
}
