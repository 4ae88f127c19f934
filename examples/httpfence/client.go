package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// client sends the name and the token of the lock that the context of a request carries.
var client = &http.Client{Transport: &httpfence.Transport{}}

// depositAll makes deposits under the lock of the account, and tells the balance after each. It ends with the lock: the
// context of Do does.
func depositAll(
	ctx context.Context, sess *session.Session, service, account string, amounts []int,
	tell func(lk *locker.Lock, amount int, balance string),
) error {
	return locker.NewMutex(sess, lockName(account)).Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
		for _, amount := range amounts {
			url := fmt.Sprintf("%s/accounts/%s/deposits?amount=%d", service, account, amount)
			balance, err := post(ctx, url)
			if err != nil {
				return fmt.Errorf("deposit of %d: %w", amount, err)
			}
			tell(lk, amount, balance)
		}
		return nil
	})
}

func post(ctx context.Context, url string) (answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err // the deposit may have been made, and may still be
	}
	defer resp.Body.Close()
	if err := httpfence.CheckResponse(resp); err != nil {
		return "", err // fencing.ErrStale: another holder has written since; nothing was done
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}
