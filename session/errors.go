package session

import (
	"fmt"
	"strings"
	"time"
)

// CallbackError names the callbacks that had not returned when Close stopped waiting for them. Everything else is
// closed. A callback that calls Close gets one that names itself.
type CallbackError struct {
	Callbacks []string      // each by its name and place in the source
	Waited    time.Duration // at most: Options.CloseTimeout
}

func (e *CallbackError) Error() string {
	return fmt.Sprintf("callback still running (Close waits %v for it; see Options.CloseTimeout): %s",
		e.Waited, strings.Join(e.Callbacks, ", "))
}
