package torture

import (
	"context"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"thread/bridge/internal/sqsserver"
	_ "thread/bridge/sqs"
)

// sqsQueue is a standard queue whose messages are redelivered after a second.
func sqsQueue(t *testing.T) *queue {
	server := sqsserver.New(t)
	c := sqs.New(sqs.Options{Region: sqsserver.Region, BaseEndpoint: &server.URL, Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: sqsserver.AccessKey, SecretAccessKey: sqsserver.SecretKey}, nil
	})})
	ctx := context.Background()
	q, err := c.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("orders")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("orders-dlq")}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", sqsserver.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", sqsserver.SecretKey)
	return &queue{
		dead:   []string{"queue_name: orders", "queue_name: orders-dlq"},
		config: fmt.Sprintf("queue_name: orders\nconsumer_group: g\nadapter: {type: sqs, connection: {region: %s, endpoint: %q, visibility_timeout: 1s}}\n", sqsserver.Region, server.URL),
		send: func(n int64) error {
			_, err := c.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: q.QueueUrl, MessageBody: aws.String(fmt.Sprintf(`{"n":%d}`, n))})
			return err
		},
		empty: func() bool { return server.Left("orders") == 0 },
	}
}
