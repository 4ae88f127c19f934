package session

// CheckNamespace reports whether ns can be Options.Namespace: nil or a
// *NameError. The empty one stands for DefaultNamespace.
func CheckNamespace(ns string) error {
	if ns == "" {
		return nil
	}
	if reason := badNamespace(ns); reason != "" {
		return &NameError{"namespace", ns, reason}
	}
	return nil
}
