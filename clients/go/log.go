package jobs

import "log"

// Logger is what a worker logs to. A *slog.Logger is one. The args are names and values by turns.
type Logger interface {
	Warn(message string, args ...any)
	Error(message string, args ...any)
}

// standardLogger logs to the logger of package log.
type standardLogger struct{}

func (standardLogger) Warn(message string, args ...any)  { log.Println("WARN jobs:", message, args) }
func (standardLogger) Error(message string, args ...any) { log.Println("ERROR jobs:", message, args) }
