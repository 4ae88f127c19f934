package main

import (
	"context"
	"database/sql"
	"errors"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// queue is a table of jobs, and the guard of what is written to it.
type queue struct {
	db    *sql.DB
	guard *sqlfence.Guard
}

type job struct {
	ID   int
	Task string
}

// resource is what the guard keeps a mark for: the whole queue. A mark for each job would stay after the job.
const resource = "jobs"

// openQueue opens the queue in a file, and puts four jobs into a new one.
func openQueue(ctx context.Context, path string) (*queue, error) {
	// Without a busy timeout a writer fails instead of waiting for another one.
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	guard, err := sqlfence.New(db, sqlfence.SQLite, sqlfence.Options{})
	if err == nil {
		err = guard.EnsureSchema(ctx)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, `
			CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, task TEXT NOT NULL, result TEXT);
			INSERT OR IGNORE INTO jobs (id, task)
			VALUES (1, 'invoice of March'), (2, 'invoice of April'), (3, 'dunning letter'), (4, 'annual report')`)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &queue{db, guard}, nil
}

// next returns the oldest job that has no result.
func (q *queue) next(ctx context.Context) (j job, found bool, err error) {
	err = q.db.QueryRowContext(ctx, "SELECT id, task FROM jobs WHERE result IS NULL ORDER BY id LIMIT 1").
		Scan(&j.ID, &j.Task)
	if errors.Is(err, sql.ErrNoRows) {
		return j, false, nil
	}
	return j, err == nil, err
}

// finish writes the result of a job. It is refused once a newer holder of the lock has written to the queue.
func (q *queue) finish(ctx context.Context, lk fencing.Source, j job, result string) error {
	return q.guard.Do(ctx, resource, lk, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE jobs SET result = ? WHERE id = ?", result, j.ID)
		return err
	})
}

func (q *queue) result(ctx context.Context, id int) (result string, err error) {
	err = q.db.QueryRowContext(ctx, "SELECT result FROM jobs WHERE id = ?", id).Scan(&result)
	return result, err
}
