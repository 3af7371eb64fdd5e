// A program that keeps connections: sessions of PostgreSQL, and plain ones over which numbered bytes go.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
)

// Longer than any answer of a live session takes; a session that hangs is seen by it.
const queryTimeout = 20 * time.Second

type session struct {
	mu       sync.Mutex
	conn     *sql.Conn
	notified []string
}

type answer struct {
	Rows  [][]string `json:"rows"`
	Error string     `json:"error"`
	Ms    int64      `json:"ms"`
}

var (
	mu       sync.Mutex
	sessions = map[string]*session{}
	streams  = map[string]*stream{}
)

func openSession(source string) (*session, error) {
	connector, err := pq.NewConnector(source)
	if err != nil {
		return nil, err
	}
	s := &session{}
	db := sql.OpenDB(pq.ConnectorWithNotificationHandler(connector, func(n *pq.Notification) {
		s.notified = append(s.notified, n.Extra)
	}))
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	s.conn, err = db.Conn(ctx)
	return s, err
}

// One statement on the session's own connection: nothing is tried again, nothing connects anew.
func (s *session) query(statement string) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	rows, err := s.read(ctx, statement)
	result := answer{Rows: rows, Ms: time.Since(begin).Milliseconds()}
	if err != nil {
		result.Error = err.Error()
	}
	return result
}

func (s *session) read(ctx context.Context, statement string) ([][]string, error) {
	all := [][]string{}
	rows, err := s.conn.QueryContext(ctx, statement)
	if err != nil {
		return all, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return all, err
	}
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		places := make([]any, len(columns))
		for i := range values {
			places[i] = &values[i]
		}
		if err := rows.Scan(places...); err != nil {
			return all, err
		}
		row := []string{}
		for _, value := range values {
			row = append(row, value.String)
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

func (s *session) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.notified...)
}

func respond(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("content-type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		log.Print(err)
	}
}

func named[T any](all map[string]*T, r *http.Request) *T {
	mu.Lock()
	defer mu.Unlock()
	return all[r.URL.Query().Get("name")]
}

func keep[T any](all map[string]*T, r *http.Request, made *T) {
	mu.Lock()
	defer mu.Unlock()
	all[r.URL.Query().Get("name")] = made
}

func main() {
	http.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { respond(w, "ready", nil) })
	http.HandleFunc("POST /session/open", func(w http.ResponseWriter, r *http.Request) {
		source, err := io.ReadAll(r.Body)
		if err != nil {
			respond(w, nil, err)
			return
		}
		s, err := openSession(string(source))
		if err == nil {
			keep(sessions, r, s)
		}
		respond(w, "open", err)
	})
	http.HandleFunc("POST /session/query", func(w http.ResponseWriter, r *http.Request) {
		statement, err := io.ReadAll(r.Body)
		s := named(sessions, r)
		if err != nil || s == nil {
			http.Error(w, "no such session", http.StatusNotFound)
			return
		}
		respond(w, s.query(string(statement)), nil)
	})
	http.HandleFunc("GET /session/notified", func(w http.ResponseWriter, r *http.Request) {
		s := named(sessions, r)
		if s == nil {
			http.Error(w, "no such session", http.StatusNotFound)
			return
		}
		respond(w, s.taken(), nil)
	})
	http.HandleFunc("POST /stream/open", func(w http.ResponseWriter, r *http.Request) {
		s, err := openStream(r.URL.Query().Get("address"))
		if err == nil {
			keep(streams, r, s)
		}
		respond(w, "open", err)
	})
	http.HandleFunc("POST /stream/{verb}", func(w http.ResponseWriter, r *http.Request) {
		s := named(streams, r)
		if s == nil {
			http.Error(w, "no such stream", http.StatusNotFound)
			return
		}
		respond(w, "", s.begin(r.PathValue("verb")))
	})
	http.HandleFunc("GET /stream/state", func(w http.ResponseWriter, r *http.Request) {
		s := named(streams, r)
		if s == nil {
			http.Error(w, "no such stream", http.StatusNotFound)
			return
		}
		respond(w, s.state(), nil)
	})
	address := ":8080"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	// How many of its own clients it believes to be connected: the one that asks is one of them.
	var clients atomic.Int64
	http.HandleFunc("GET /clients", func(w http.ResponseWriter, _ *http.Request) { respond(w, clients.Load(), nil) })
	server := http.Server{Addr: address, ConnState: func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			clients.Add(1)
		case http.StateClosed, http.StateHijacked:
			clients.Add(-1)
		}
	}}
	log.Fatal(server.ListenAndServe())
}
