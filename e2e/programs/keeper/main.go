// Keeper is the program of the tests of volumes: it counts in every way in which a program keeps a file, and says what
// each of them holds.
//
//	GET  /                count once more everywhere; the counts
//	GET  /look            the counts as they are, of what is in the files
//	POST /fill?mib=N      write a file of N MiB into the volume
//	POST /unlinked        hold a file that has no name any more; from then on it counts too
//	POST /exit            end
//
// Told to end by SIGTERM it notes so in the volume and ends, unless it runs with "deaf".
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

const volume = "/data"

type keeper struct {
	mu       sync.Mutex
	memory   int
	append   *os.File
	mapped   []byte
	unlinked *os.File
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func open() *keeper {
	k := &keeper{}
	k.append = must(os.OpenFile(filepath.Join(volume, "log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644))
	file := must(os.OpenFile(filepath.Join(volume, "mapped"), os.O_CREATE|os.O_RDWR, 0o644))
	check(file.Truncate(4096))
	k.mapped = must(syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED))
	return k
}

// count adds one in each way. The journal is written, synced, applied and removed as a database's is.
func (k *keeper) count() {
	k.memory++
	must(fmt.Fprintf(k.append, "%d\n", k.memory))
	k.mapped[0]++
	rows := readNumber(filepath.Join(volume, "rows")) + 1
	journal := filepath.Join(volume, "rows-journal")
	writeSynced(journal, rows)
	writeSynced(filepath.Join(volume, "rows"), rows)
	check(os.Remove(journal))
	// A folder that older layers have is renamed, as programs do that replace one by another.
	from, to := filepath.Join(volume, fmt.Sprintf("turn-%d", rows-1)), filepath.Join(volume, fmt.Sprintf("turn-%d", rows))
	if err := os.Rename(from, to); err != nil {
		check(os.MkdirAll(to, 0o755))
	}
	check(os.WriteFile(filepath.Join(to, strconv.Itoa(rows)), nil, 0o644))
	check(os.WriteFile("/root-count", []byte(strconv.Itoa(readNumber("/root-count")+1)), 0o644))
	if k.unlinked != nil {
		must(k.unlinked.WriteString("x"))
	}
}

func writeSynced(path string, number int) {
	file := must(os.Create(path))
	must(fmt.Fprintf(file, "%d", number))
	check(file.Sync())
	check(file.Close())
}

func readNumber(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	return must(strconv.Atoi(string(text)))
}

func (k *keeper) look() map[string]any {
	text := must(os.ReadFile(filepath.Join(volume, "log")))
	rows := readNumber(filepath.Join(volume, "rows"))
	turns, _ := os.ReadDir(filepath.Join(volume, fmt.Sprintf("turn-%d", rows)))
	ended, _ := os.ReadFile(filepath.Join(volume, "ended"))
	file := must(os.ReadFile(filepath.Join(volume, "mapped")))
	counts := map[string]any{
		"memory": k.memory,
		"log":    bytes.Count(text, []byte("\n")),
		"mapped": k.mapped[0],
		"inFile": file[0],
		"rows":   rows,
		"turns":  len(turns),
		"root":   readNumber("/root-count"),
		"ended":  strings.Count(string(ended), "x"),
		"pid":    os.Getpid(),
	}
	if k.unlinked != nil {
		counts["unlinked"] = must(k.unlinked.Stat()).Size()
	}
	return counts
}

func main() {
	k := open()
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	go func() {
		for range terms {
			if len(os.Args) > 1 && os.Args[1] == "deaf" {
				continue
			}
			file := must(os.OpenFile(filepath.Join(volume, "ended"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
			must(file.WriteString("x"))
			os.Exit(0)
		}
	}()
	answer := func(pattern string, serve func(r *http.Request)) {
		http.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			k.mu.Lock()
			defer k.mu.Unlock()
			serve(r)
			w.Header().Set("Connection", "close")
			check(json.NewEncoder(w).Encode(k.look()))
		})
	}
	answer("GET /{$}", func(*http.Request) { k.count() })
	answer("GET /look", func(*http.Request) {})
	answer("POST /exit", func(*http.Request) { os.Exit(3) })
	answer("POST /fill", func(r *http.Request) {
		block := make([]byte, 1<<20)
		must(rand.Read(block))
		file := must(os.Create(filepath.Join(volume, "fill")))
		for range must(strconv.Atoi(r.URL.Query().Get("mib"))) {
			must(file.Write(block))
		}
		check(file.Close())
	})
	answer("POST /unlinked", func(*http.Request) {
		path := filepath.Join(volume, "unlinked")
		k.unlinked = must(os.Create(path))
		check(os.Remove(path))
	})
	log.Fatal(http.ListenAndServe(":8080", nil))
}
