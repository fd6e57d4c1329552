package cli

import "time"

// CheckConsumer refuses an empty consumer, which --consumer "$UNSET" gives.
func CheckConsumer(id string) error {
	if id == "" {
		return UsageError("--consumer is empty", "name the consumer")
	}
	return nil
}

// ConsumersTime bounds the wait for a busy thread: someone sits at the prompt.
const ConsumersTime = 500 * time.Millisecond
