package page

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/fencing"
)

var (
	config        *rest.Config
	podName, uuid string
)

func sync(context.Context, fencing.Token) error { return nil }
