package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// accept answers before what follows ends the program.
func accept(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusAccepted)
	return http.NewResponseController(w).Flush()
}

func exit(w http.ResponseWriter, r *http.Request) error {
	code, err := number(r, "code")
	if err != nil {
		return err
	}
	fmt.Printf("exiting with %d\n", code)
	if err := accept(w); err != nil {
		return err
	}
	time.AfterFunc(10*time.Millisecond, func() { os.Exit(code) })
	return nil
}

// signal ends the program as the kernel does: Go itself would catch a SIGSEGV that another process sent.
func signal(w http.ResponseWriter, r *http.Request) error {
	n, err := number(r, "n")
	if err != nil {
		return err
	}
	if err := accept(w); err != nil {
		return err
	}
	return syscall.Kill(os.Getpid(), syscall.Signal(n))
}

func fork(w http.ResponseWriter, _ *http.Request) error {
	fmt.Println("forking")
	if err := accept(w); err != nil {
		return err
	}
	go multiply()
	return nil
}

func multiply() {
	for {
		if err := exec.Command("/proc/self/exe", "-bomb").Start(); err != nil {
			fmt.Printf("fork: %v\n", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// fill writes to a new file until that fails, and says why.
func fill(w http.ResponseWriter, r *http.Request) error {
	file, err := os.Create(filepath.Join(r.URL.Query().Get("path"), "filler"))
	if err != nil {
		return err
	}
	defer file.Close()
	chunk := make([]byte, mebibyte)
	for i := range chunk {
		chunk[i] = byte(i)
	}
	for written := 0; ; written++ {
		if _, err := file.Write(chunk); err != nil {
			return errors.Join(fmt.Errorf("after %d MiB", written), err)
		}
	}
}
