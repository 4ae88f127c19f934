package sending_test

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/sending"
)

// After a round of copies that no member has answered, further ones are sent as calls are answered.
func TestAnswersPayForCopies(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3)
		answered := func() {
			r.mu.Lock()
			r.replies, r.at = []reply{{5 * ms, nil}}, nil
			r.mu.Unlock()
			if _, _, err := r.once(t.Context(), sending.Write); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 { // nothing is saved up
			answered()
		}
		for i, want := range []int{3, 1, 1, 1, 3, 1} { // after each of the third and the fourth one another call is answered
			if sent := r.hung(t, sending.Write, 300*ms); len(sent) != 1+want {
				t.Errorf("call %d is sent at %v, want %d copies", i, sent, want)
			}
			if i == 2 || i == 3 {
				answered()
			}
		}
	})
}

// Most likely etcd as a whole is slow, when a request has been in flight for so long.
func TestAfterASecondOneCopyIsSentAndNoRound(t *testing.T) {
	for latest, want := range map[time.Duration]int{500 * ms: 3, 501 * ms: 1} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 3, reply{after: latest})
			if _, _, err := r.once(t.Context(), sending.Renewal); err != nil { // so the next pause is twice as long
				t.Fatal(err)
			}
			r.sender.Wait()
			for range 3 { // pays for what was sent
				r.mu.Lock()
				r.replies, r.at = []reply{{latest, nil}}, nil
				r.mu.Unlock()
				if _, _, err := r.once(t.Context(), sending.Renewal); err != nil {
					t.Fatal(err)
				}
			}
			if sent := r.hung(t, sending.Renewal, 2*latest+ms); len(sent) != 1+want || sent[1] != 2*latest {
				t.Errorf("after replies in %v: sent at %v, want %d copies", latest, sent, want)
			}
		})
	}
}

// Two of five members may hang, so fewer answers pay for a round than of three.
func TestFiveMembersPayForARoundWithTwoAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 5)
		for i, want := range []int{5, 1, 5, 1} {
			if i == 2 {
				r.mu.Lock()
				r.replies, r.at = []reply{{5 * ms, nil}}, nil
				r.mu.Unlock()
				if _, _, err := r.once(t.Context(), sending.Read); err != nil {
					t.Fatal(err)
				}
			}
			if sent := r.hung(t, sending.Write, 300*ms); len(sent) != 1+want {
				t.Errorf("call %d is sent at %v, want %d copies", i, sent, want)
			}
		}
	})
}

// Calls that hang side by side may send as many copies as there are calls: etcd has room for those.
func TestManyCallsMaySendCopiesSideBySide(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3)
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() { _, _, _ = r.once(t.Context(), sending.Write) })
		}
		time.Sleep(300 * ms)
		r.mu.Lock()
		if sent := len(r.at); sent != 8+3*3+5 { // of the last five calls each has one copy
			t.Errorf("8 calls were sent %d times", sent)
		}
		r.mu.Unlock()
		calls.Wait()
		r.sender.Wait()
		if sent := r.hung(t, sending.Read, 200*ms); len(sent) != 2 {
			t.Errorf("a call after those is sent at %v, want one copy: none of the others was answered", sent)
		}
	})
}
