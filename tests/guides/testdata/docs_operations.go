package page

import "github.com/holdfast-go/holdfast/audit"

var records audit.Auditor
