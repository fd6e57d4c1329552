// Shop is a web server that turns orders and refunds into jobs; see README.md.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"thread/history"
)

type shop struct{ jobs *history.History }

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: shop THREAD ADDRESS, for example: shop ./shop.thread 127.0.0.1:8080")
	}
	h, err := history.Open(context.Background(), os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	s := &shop{jobs: h}
	http.HandleFunc("POST /orders", s.handle(func(o *order) (history.RunRow, history.Job) {
		return history.RunRow{AgentName: "mail"}, history.Job{
			Unique:    fmt.Sprintf("order-%d", o.Order),            // a second click queues no second mail
			Group:     "mails-" + time.Now().Format(time.DateOnly), // the report of the day waits for these
			Retries:   5,
			TimeoutMS: 30_000,
		}
	}))
	http.HandleFunc("POST /refunds", s.handle(func(o *order) (history.RunRow, history.Job) {
		id := fmt.Sprintf("refund-%d", o.Order)
		return history.RunRow{AgentName: "refund"}, history.Job{Unique: id, Priority: 10, Retries: 5}
	}))
	log.Fatal(http.ListenAndServe(os.Args[2], nil))
}

// order is the body of a request.
type order struct {
	Order int64  `json:"order"`
	To    string `json:"to"`
	Euros int64  `json:"euros,omitempty"`
}

// handle answers 202 with the id of a job when the job is on the disk.
func (s *shop) handle(job func(*order) (history.RunRow, history.Job)) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		var o order
		if err := json.NewDecoder(http.MaxBytesReader(w, q.Body, 1<<16)).Decode(&o); err != nil || o.Order < 1 || o.To == "" {
			http.Error(w, "the body is not an order", http.StatusBadRequest)
			return
		}
		row, err := s.enqueue(q.Context(), &o, job)
		if err != nil {
			log.Print(err)
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, row.ID+"\n") // the job is stored in any case
	}
}

func (s *shop) enqueue(ctx context.Context, o *order, job func(*order) (history.RunRow, history.Job)) (history.RunRow, error) {
	input, err := json.Marshal(o)
	if err != nil {
		return history.RunRow{}, err
	}
	row, j := job(o)
	if err := history.SetJob(&row, j); err != nil {
		return row, err
	}
	row, _, err = s.jobs.EnqueueJob(ctx, row, input)
	return row, err
}
