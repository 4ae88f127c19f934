package hold

import "fmt"

// String says what is held, such as
//
//	lock "billing/job-7", token 120, lease 694d
func (h *Hold) String() string {
	if h == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s, %slease %x", h.Queue(), h.tokenText(), int64(h.Lease()))
}
