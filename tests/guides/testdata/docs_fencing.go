package page

var n1 string
