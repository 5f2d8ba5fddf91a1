"""What two organisations and their clients run: tasks, keys, sealed submissions, durable servers, receipts."""
