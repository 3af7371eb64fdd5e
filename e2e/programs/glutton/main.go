// Glutton is the program of tests and benchmarks: it holds as much memory as it is told to, and fails, sleeps and
// streams on request.
//
//	GET  /                            {"count", "pid", "mib", "hooks"} at once
//	GET  /readyz                      200
//	POST /hold?mib=N&kind=KIND        hold exactly N MiB; KIND is random, zero, or half: of each page the second half is zero
//	POST /touch?every=page|mib        read one byte of each page held (the default), or of each MiB
//	POST /dirty?mib=N                 overwrite the first N MiB with new random bytes
//	POST /churn?mib=N&kind=KIND       overwrite as many pages as N MiB have, spread over all that is held
//	GET  /digest                      sha256 of the memory held
//	POST /disk?path=DIR&mib=N&files=M&kind=KIND
//	                                  write M new files of N MiB together; those of the last call for DIR go
//	POST /open?path=DIR&n=N           hold N more open files
//	POST /unlinked?path=DIR&mib=N     hold one more open file of N MiB that has no name
//	POST /sparse?path=DIR&mib=N       write a file of that size that has a page of data every 16 MiB
//	POST /burn?ms=N&threads=M         keep M threads busy, answer after N ms
//	POST /threads?n=N                 start N more threads that wake every 10 ms
//	POST /children?n=N                start N more processes, each with a secret of its own
//	GET  /holdings                    how much is held of each kind, with a sha256 of its content
//	POST /exit?code=N                 end
//	POST /signal?n=N                  end by a signal
//	POST /oom                         take memory until killed
//	POST /fork                        start copies of itself that do the same, until something gives
//	POST /fill?path=DIR               write a file there until that fails
//	POST /sicken                      answer readyz with 500 from now on
//	GET  /hook                        count the calls of hooks.afterRestore
//	GET  /env?name=NAME               a variable of its environment
//	GET  /sleep?ms=N                  answer after N ms
//	POST /echo                        stream the request's body back
//	GET  /stream?n=N&ms=M             N server-sent events, one every M ms
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

type glutton struct {
	memory   *memory
	files    *files
	threads  threads
	children children
	count    atomic.Int64
	hooks    atomic.Int64
	sick     atomic.Bool
}

func number(r *http.Request, name string) (int, error) {
	value, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil || value < 0 {
		return 0, fmt.Errorf("%s must be a number of 0 or more, as in %s?%s=1", name, r.URL.Path, name)
	}
	return value, nil
}

func kindOf(r *http.Request) (string, error) {
	kind := r.URL.Query().Get("kind")
	if kind != "random" && kind != "zero" && kind != "half" {
		return "", errors.New("kind must be random, zero or half")
	}
	return kind, nil
}

func answer(w http.ResponseWriter, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		log.Printf("answer: %v", err)
	}
}

// handle turns a handler that may fail on its input into a 400.
func handle(mux *http.ServeMux, pattern string, serve func(http.ResponseWriter, *http.Request) error) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			log.Printf("%s %s: %v", r.Method, r.URL, err)
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
}

func (g *glutton) hold(w http.ResponseWriter, r *http.Request) error {
	mib, err := number(r, "mib")
	if err != nil {
		return err
	}
	kind, err := kindOf(r)
	if err != nil {
		return err
	}
	if err := g.memory.hold(mib, kind); err != nil {
		return err
	}
	answer(w, map[string]any{"mib": mib, "kind": kind})
	return nil
}

func (g *glutton) churn(w http.ResponseWriter, r *http.Request) error {
	mib, err := number(r, "mib")
	if err != nil {
		return err
	}
	kind, err := kindOf(r)
	if err != nil {
		return err
	}
	if err := g.memory.churn(mib, kind); err != nil {
		return err
	}
	answer(w, map[string]any{"churned": mib, "kind": kind})
	return nil
}

func (g *glutton) touch(w http.ResponseWriter, r *http.Request) error {
	step := pageBytes
	switch every := r.URL.Query().Get("every"); every {
	case "", "page":
	case "mib":
		step = mebibyte
	default:
		return fmt.Errorf("every must be page or mib, not %s", every)
	}
	touched, sum := g.memory.touch(step)
	answer(w, map[string]any{"pages": touched, "sum": sum})
	return nil
}

func (g *glutton) dirty(w http.ResponseWriter, r *http.Request) error {
	mib, err := number(r, "mib")
	if err != nil {
		return err
	}
	if err := g.memory.dirty(mib); err != nil {
		return err
	}
	answer(w, map[string]any{"dirtied": mib})
	return nil
}

func sleep(w http.ResponseWriter, r *http.Request) error {
	ms, err := number(r, "ms")
	if err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
		answer(w, map[string]any{"slept": ms})
	case <-r.Context().Done():
		log.Printf("%s: client went away", r.URL)
	}
	return nil
}

func echo(w http.ResponseWriter, r *http.Request) error {
	controller := http.NewResponseController(w)
	if err := controller.EnableFullDuplex(); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	buffer := make([]byte, 64<<10)
	for {
		n, readErr := r.Body.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				log.Printf("echo: %v", err)
				return nil
			}
			if err := controller.Flush(); err != nil {
				log.Printf("echo: %v", err)
				return nil
			}
		}
		if readErr == io.EOF {
			return nil
		}
		if readErr != nil {
			panic(http.ErrAbortHandler) // the answer has begun: only a broken connection can tell
		}
	}
}

func stream(w http.ResponseWriter, r *http.Request) error {
	n, err := number(r, "n")
	if err != nil {
		return err
	}
	ms, err := number(r, "ms")
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	controller := http.NewResponseController(w)
	for i := 1; i <= n; i++ {
		if _, err := fmt.Fprintf(w, "id: %d\ndata: %d\n\n", i, i); err != nil {
			return nil
		}
		if err := controller.Flush(); err != nil {
			return nil
		}
		if i == n {
			break
		}
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-r.Context().Done():
			return nil
		}
	}
	return nil
}

func main() {
	address := flag.String("listen", ":8080", "address to listen on")
	mib := flag.Int("hold-mib", 0, "MiB to hold before listening")
	kind := flag.String("kind", "random", "what to hold before listening: random, zero or half")
	bomb := flag.Bool("bomb", false, "be one of the copies of POST /fork")
	child := flag.Bool("child", false, "be one of the processes of POST /children")
	flag.Parse()
	if *child {
		answerParent()
		return
	}
	if *bomb {
		multiply()
		time.Sleep(time.Hour)
	}

	g := &glutton{memory: newMemory(), files: newFiles()}
	if err := g.memory.hold(*mib, *kind); err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if g.sick.Load() {
			http.Error(w, "sick", http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("POST /sicken", func(w http.ResponseWriter, _ *http.Request) { g.sick.Store(true) })
	mux.HandleFunc("GET /hook", func(w http.ResponseWriter, _ *http.Request) { g.hooks.Add(1) })
	mux.HandleFunc("GET /env", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, os.Getenv(r.URL.Query().Get("name")))
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"count": g.count.Add(1), "pid": os.Getpid(), "mib": g.memory.sizeMib(), "hooks": g.hooks.Load()})
	})
	handle(mux, "POST /hold", g.hold)
	handle(mux, "POST /dirty", g.dirty)
	handle(mux, "POST /churn", g.churn)
	handle(mux, "POST /touch", g.touch)
	handle(mux, "POST /disk", g.files.churn)
	handle(mux, "POST /open", g.files.open)
	handle(mux, "POST /unlinked", g.files.unlinked)
	handle(mux, "POST /sparse", g.files.sparse)
	handle(mux, "POST /burn", burn)
	handle(mux, "POST /threads", g.threads.start)
	handle(mux, "POST /children", g.children.start)
	handle(mux, "GET /holdings", g.holdings)
	mux.HandleFunc("GET /digest", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"sha256": g.memory.digest()})
	})
	handle(mux, "POST /exit", exit)
	handle(mux, "POST /signal", signal)
	handle(mux, "POST /fork", fork)
	handle(mux, "POST /fill", fill)
	handle(mux, "POST /oom", func(http.ResponseWriter, *http.Request) error { return exhaust() })
	handle(mux, "GET /sleep", sleep)
	handle(mux, "POST /echo", echo)
	handle(mux, "GET /stream", stream)

	fmt.Printf("listening on %s, pid %d\n", *address, os.Getpid())
	server := &http.Server{Addr: *address, Handler: mux, ReadHeaderTimeout: 30 * time.Second}
	log.Fatal(server.ListenAndServe())
}
