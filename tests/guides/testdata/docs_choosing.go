package page

import "context"

func compute(context.Context, string) (string, error) { return "", nil }
