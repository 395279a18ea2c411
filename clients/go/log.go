package jobs

import (
	"fmt"
	"log"
	"strings"
)

// Logger is what a worker logs to. A *slog.Logger is one. The args are names and values by turns.
type Logger interface {
	Info(message string, args ...any)
	Warn(message string, args ...any)
	Error(message string, args ...any)
}

// standardLogger logs to the logger of package log.
type standardLogger struct{}

func (standardLogger) Info(message string, args ...any)  { write("INFO", message, args) }
func (standardLogger) Warn(message string, args ...any)  { write("WARN", message, args) }
func (standardLogger) Error(message string, args ...any) { write("ERROR", message, args) }

func write(level, message string, args []any) {
	var line strings.Builder
	for i := 0; i+1 < len(args); i += 2 {
		fmt.Fprintf(&line, " %v=%q", args[i], fmt.Sprint(args[i+1]))
	}
	log.Printf("%s jobs: %s%s", level, message, line.String())
}
