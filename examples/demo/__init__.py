"""The main job: a real data set through name servers, brokers, consumers and Spark. Run: make demo."""
