// Package options adds options to options.
package options

import "reflect"

// Over returns base with those fields of set that are not zero. Of a field that is itself a struct, as a retry policy
// is, each field counts.
func Over[T any](base, set T) T {
	over(reflect.ValueOf(&base).Elem(), reflect.ValueOf(&set).Elem())
	return base
}

func over(base, set reflect.Value) {
	for i := range set.NumField() {
		switch to, from := base.Field(i), set.Field(i); {
		case from.Kind() == reflect.Struct:
			over(to, from)
		case !from.IsZero():
			to.Set(from)
		}
	}
}
