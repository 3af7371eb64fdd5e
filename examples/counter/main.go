// Counter answers every GET with one JSON line that shows what survives a sleep: a number in memory, a number in a
// file of its root file system, and its process id. "copy" and "random" differ between copies of one snapshot.
package main

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	address      = ":8080"
	countFile    = "/var/lib/counter/count"
	identityDir  = "/run/ate"
	maxSlowSleep = 10 * time.Minute
)

type reply struct {
	Memory     int    `json:"memory"`
	File       int    `json:"file"`
	Pid        int    `json:"pid"`
	Actor      string `json:"actor"`
	Generation string `json:"generation"`
	Hostname   string `json:"hostname"`
	StartedAt  string `json:"startedAt"`
	Copy       string `json:"copy"`
	Random     uint64 `json:"random"`
}

type counter struct {
	mu        sync.Mutex
	memory    int
	startedAt time.Time
	copy      string
	random    *rand.Rand
}

// renew makes what must not be the same in two copies of this process: called at the start and after each restore.
func (c *counter) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copy = crand.Text()
	c.random = newRandom()
}

// identity reads one of the files that are made anew at every resume; "" outside of Substrate.
func identity(name string) string {
	text, err := os.ReadFile(filepath.Join(identityDir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// nextInFile adds one to the number in the file; a missing file counts as 0.
func nextInFile() (int, error) {
	text, err := os.ReadFile(countFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	count := 0
	if err == nil {
		if count, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			return 0, fmt.Errorf("%s: %w", countFile, err)
		}
	}
	count++
	if err := os.MkdirAll(filepath.Dir(countFile), 0o755); err != nil {
		return 0, err
	}
	return count, os.WriteFile(countFile, []byte(strconv.Itoa(count)+"\n"), 0o644)
}

func (c *counter) next() (reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	file, err := nextInFile()
	if err != nil {
		return reply{}, err
	}
	c.memory++
	hostname, err := os.Hostname()
	if err != nil {
		return reply{}, err
	}
	return reply{
		Memory:     c.memory,
		File:       file,
		Pid:        os.Getpid(),
		Actor:      identity("actor-name"),
		Generation: identity("generation"),
		Hostname:   hostname,
		StartedAt:  c.startedAt.UTC().Format(time.RFC3339Nano),
		Copy:       c.copy,
		Random:     c.random.Uint64(),
	}, nil
}

// slow parses ?seconds= of /slow; fractions are allowed.
func slow(r *http.Request) (time.Duration, error) {
	seconds, err := strconv.ParseFloat(r.URL.Query().Get("seconds"), 64)
	if err != nil {
		return 0, errors.New("seconds must be a number, as in /slow?seconds=10")
	}
	delay := time.Duration(seconds * float64(time.Second))
	if delay < 0 || delay > maxSlowSleep {
		return 0, fmt.Errorf("seconds must be between 0 and %d", int(maxSlowSleep.Seconds()))
	}
	return delay, nil
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "/slow" {
		delay, err := slow(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			fmt.Printf("%s %s: client went away\n", r.Method, r.URL)
			return
		}
	}
	answer, err := c.next()
	if err != nil {
		fmt.Printf("%s %s: %v\n", r.Method, r.URL, err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		fmt.Printf("%s %s: %v\n", r.Method, r.URL, err)
		return
	}
	fmt.Printf("%s %s memory=%d file=%d\n", r.Method, r.URL, answer.Memory, answer.File)
}

func main() {
	state := &counter{startedAt: time.Now()}
	state.renew()
	go onRestore(state.renew)
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("/", state)
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 30 * time.Second}

	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	go func() {
		<-stop.Done()
		bounded, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		if err := server.Shutdown(bounded); err != nil {
			log.Printf("shutdown: %v", err)
		}
	}()
	fmt.Printf("listening on %s, pid %d\n", address, os.Getpid())
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}
