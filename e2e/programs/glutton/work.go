package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const tick = 10 * time.Millisecond

// burn keeps threads busy and says how often they went round.
func burn(w http.ResponseWriter, r *http.Request) error {
	ms, err := number(r, "ms")
	if err != nil {
		return err
	}
	count, err := number(r, "threads")
	if err != nil {
		return err
	}
	until := time.Now().Add(time.Duration(ms) * time.Millisecond)
	var rounds atomic.Int64
	var all sync.WaitGroup
	for range count {
		all.Add(1)
		go func() {
			defer all.Done()
			runtime.LockOSThread()
			for time.Now().Before(until) {
				rounds.Add(1)
			}
		}()
	}
	all.Wait()
	answer(w, map[string]any{"rounds": rounds.Load()})
	return nil
}

// threads are real ones of the kernel, each woken by a timer of its own.
type threads struct {
	count atomic.Int64
	ticks atomic.Int64
}

func (t *threads) start(w http.ResponseWriter, r *http.Request) error {
	n, err := number(r, "n")
	if err != nil {
		return err
	}
	for range n {
		t.count.Add(1)
		go func() {
			runtime.LockOSThread()
			for {
				time.Sleep(tick)
				t.ticks.Add(1)
			}
		}()
	}
	answer(w, map[string]any{"threads": t.count.Load()})
	return nil
}

// children are processes that are asked through pipes.
type children struct {
	mu  sync.Mutex
	all []*child
}

type child struct {
	command *exec.Cmd
	ask     io.Writer
	answers *bufio.Reader
}

func (c *children) start(w http.ResponseWriter, r *http.Request) error {
	n, err := number(r, "n")
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		command := exec.Command("/proc/self/exe", "-child")
		command.Stderr = os.Stderr
		ask, err := command.StdinPipe()
		if err != nil {
			return err
		}
		answers, err := command.StdoutPipe()
		if err != nil {
			return err
		}
		if err := command.Start(); err != nil {
			return err
		}
		c.all = append(c.all, &child{command: command, ask: ask, answers: bufio.NewReader(answers)})
	}
	answer(w, map[string]any{"children": len(c.all)})
	return nil
}

// answerParent is the life of a child: it gives its secret whenever it gets a line, until its parent has gone.
func answerParent() {
	secret := make([]byte, 16)
	_, _ = source().Read(secret)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(hex.EncodeToString(secret))
	}
}

func (c *children) holdings() (*content, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := newContent()
	for _, each := range c.all {
		if _, err := fmt.Fprintln(each.ask); err != nil {
			return nil, fmt.Errorf("child %d: %w", each.command.Process.Pid, err)
		}
		secret, err := each.answers.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("child %d: %w", each.command.Process.Pid, err)
		}
		if err := found.add(strings.NewReader(fmt.Sprintf("%d %s", each.command.Process.Pid, secret))); err != nil {
			return nil, err
		}
	}
	return found.done(), nil
}

// holdings tells all that is held. Threads are proven by their ticks within the request.
func (g *glutton) holdings(w http.ResponseWriter, _ *http.Request) error {
	held, err := g.files.holdings()
	if err != nil {
		return err
	}
	if held["children"], err = g.children.holdings(); err != nil {
		return err
	}
	before := g.threads.ticks.Load()
	if g.threads.count.Load() > 0 {
		time.Sleep(5 * tick)
	}
	answer(w, map[string]any{
		"memory":      map[string]any{"mib": g.memory.sizeMib(), "sha256": g.memory.digest()},
		"files":       held["disk"],
		"open":        held["open"],
		"unlinked":    held["unlinked"],
		"sparse":      held["sparse"],
		"children":    held["children"],
		"threads":     g.threads.count.Load(),
		"threadTicks": g.threads.ticks.Load() - before,
	})
	return nil
}
