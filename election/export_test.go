package election

// WithValue returns a copy with another value and the same options.
func (e *Election) WithValue(value string) *Election {
	o := e.opts
	o.Value = value
	return e.With(o)
}
