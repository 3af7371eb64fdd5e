// The only program of the test cluster's own images: no image has to be pulled, and it needs no libraries.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const usage = `substrate-testpod pause   the first process of a pod: holds its namespaces and reaps
substrate-testpod serve   HTTP on :8080: /name answers the pod's name, /file?path=P a file,
                          /fetch?url=U what U answers to this pod (502 and why if nothing)
substrate-testpod version`

func pause() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	children := make(chan os.Signal, 16)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-ended:
			return
		case <-children:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}

func file(w http.ResponseWriter, r *http.Request) {
	content, err := os.ReadFile(filepath.Clean(r.URL.Query().Get("path")))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Write(content)
}

func fetch(w http.ResponseWriter, r *http.Request) {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(r.URL.Query().Get("url"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	w.WriteHeader(answer.StatusCode)
	io.Copy(w, answer.Body)
}

func serve() error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	http.HandleFunc("/name", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	http.HandleFunc("/file", file)
	http.HandleFunc("/fetch", fetch)
	fmt.Println("serving on :8080")
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	go func() { <-ended; os.Exit(0) }()
	return http.ListenAndServe(":8080", nil)
}

func main() {
	command := ""
	if len(os.Args) == 2 {
		command = os.Args[1]
	}
	switch command {
	case "pause":
		pause()
	case "serve":
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "version":
		fmt.Println("substrate-testpod 1")
	default:
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
}
