package page

import "context"

func report(context.Context, string) error { return nil }
