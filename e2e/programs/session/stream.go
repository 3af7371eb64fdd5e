package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Of the bytes of a stream, each is its place modulo this: a lost, doubled or misplaced one is seen.
const cycle = 251

// Little is under way at any moment: the sandbox's stack sends again only a few segments in each of its timeouts where
// all that was under way is lost, as it is at a sleep.
const (
	chunkBytes = 256
	chunkEvery = 2 * time.Millisecond
)

type streamState struct {
	Received int64  `json:"received"`
	Sent     int64  `json:"sent"`
	Wrong    string `json:"wrong"`
	// How reading and writing ended; "EOF" is the peer's orderly end.
	ReadEnd  string `json:"readEnd"`
	WriteEnd string `json:"writeEnd"`
}

type stream struct {
	conn net.Conn
	mu   sync.Mutex
	now  streamState
	stop bool
}

func openStream(address string) (*stream, error) {
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	return &stream{conn: conn}, err
}

func (s *stream) begin(verb string) error {
	switch verb {
	case "read":
		go s.read()
	case "write":
		go s.write()
	case "stop":
		s.mu.Lock()
		s.stop = true
		s.mu.Unlock()
	default:
		return fmt.Errorf("no verb %s", verb)
	}
	return nil
}

func (s *stream) state() streamState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *stream) read() {
	buffer := make([]byte, 64*1024)
	for {
		n, err := s.conn.Read(buffer)
		s.mu.Lock()
		for i, value := range buffer[:n] {
			if want := byte((s.now.Received + int64(i)) % cycle); value != want && s.now.Wrong == "" {
				s.now.Wrong = fmt.Sprintf("byte %d is %d instead of %d", s.now.Received+int64(i), value, want)
			}
		}
		s.now.Received += int64(n)
		if err != nil {
			s.now.ReadEnd = err.Error()
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Writes until it is told to stop, and then ends its side.
func (s *stream) write() {
	for !s.stopped() {
		sent := s.state().Sent
		chunk := make([]byte, chunkBytes)
		for i := range chunk {
			chunk[i] = byte((sent + int64(i)) % cycle)
		}
		n, err := s.conn.Write(chunk)
		s.mu.Lock()
		s.now.Sent += int64(n)
		if err != nil {
			s.now.WriteEnd = err.Error()
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
		time.Sleep(chunkEvery)
	}
	tcp, ok := s.conn.(*net.TCPConn)
	if !ok {
		return
	}
	err := tcp.CloseWrite()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.WriteEnd = errors.Join(io.EOF, err).Error()
}

func (s *stream) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop
}
