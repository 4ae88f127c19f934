package page

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast"
)

var (
	config        *rest.Config
	podName, uuid string
)

func sync(context.Context, holdfast.Token) error { return nil }
