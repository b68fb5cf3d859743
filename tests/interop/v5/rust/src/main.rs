// Apache's v5 client for Rust as a program the tests drive: a command a line, a line of JSON an answer.
//
// The commands are the same in every language (../../peers.py).

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, LoggingFormat, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};

type Arguments = HashMap<String, String>;
type Outcome = Result<Value, String>;

struct Peer {
    producers: HashMap<String, Producer>,
    consumers: HashMap<String, (SimpleConsumer, String, FilterExpression)>,
    views: HashMap<String, MessageView>,
    seen: Arc<Mutex<HashMap<String, Vec<Value>>>>,
}

fn text(a: &Arguments, key: &str) -> String {
    a.get(key).cloned().unwrap_or_default()
}

fn number(a: &Arguments, key: &str, otherwise: i64) -> i64 {
    a.get(key).and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn millis() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn failed(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

fn options(a: &Arguments) -> ClientOption {
    let mut found = ClientOption::default();
    found.set_access_url(text(a, "endpoints"));
    found.set_enable_tls(a.contains_key("tls"));
    found.set_long_polling_timeout(Duration::from_secs(number(a, "await", 8).max(8) as u64));
    if a.contains_key("accessKey") {
        found.set_access_key(text(a, "accessKey"));
        found.set_secret_key(text(a, "secretKey"));
    }
    found
}

fn told(view: &MessageView) -> Value {
    json!({
        "body": String::from_utf8_lossy(view.body()), "msgId": view.message_id(), "topic": view.topic(),
        "tag": view.tag(), "keys": view.keys(), "order": view.message_group(),
        "properties": view.properties(), "attempt": view.delivery_attempt(),
        "bornHost": view.born_host(), "at": millis(),
    })
}

fn message(a: &Arguments, i: i64, half: bool) -> MessageBuilder {
    let word = a.get("body").map_or("m", String::as_str);
    let body = format!("{word}-{i}").into_bytes();
    let topic = text(a, "topic");
    let mut found = if half {
        MessageBuilder::transaction_message_builder(topic, body)
    } else {
        MessageBuilder::builder().set_topic(topic).set_body(body)
    };
    if a.contains_key("tag") {
        found = found.set_tag(text(a, "tag"));
    }
    if a.contains_key("key") {
        found = found.set_keys(vec![text(a, "key")]);
    }
    if a.contains_key("order") {
        found = found.set_message_group(text(a, "order"));
    }
    if a.contains_key("delay") {
        found = found.set_delivery_timestamp((millis() + number(a, "delay", 0)) / 1000);
    }
    let properties: HashMap<String, String> = a
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix("property.")?.to_string(), value.clone())))
        .collect();
    found.set_properties(properties)
}

impl Peer {
    async fn perform(&mut self, command: &str, a: &Arguments) -> Outcome {
        let name = text(a, "name");
        match command {
            "producer" => {
                let mut option = ProducerOption::default();
                option.set_topics(vec![text(a, "topic")]);
                option.set_logging_format(LoggingFormat::Terminal);
                let seen = self.seen.clone();
                let (check, word) = (text(a, "check"), name.clone());
                let checker = move |_, view: MessageView| {
                    seen.lock().unwrap().entry(word.clone()).or_default().push(told(&view));
                    match check.as_str() {
                        "COMMIT" => TransactionResolution::COMMIT,
                        "ROLLBACK" => TransactionResolution::ROLLBACK,
                        _ => TransactionResolution::UNKNOWN,
                    }
                };
                let mut made =
                    Producer::new_transaction_producer(option, options(a), Box::new(checker))
                        .map_err(failed)?;
                made.start().await.map_err(failed)?;
                self.producers.insert(name, made);
            }
            "send" => {
                let producer = self.producers.get(&name).ok_or("no such producer")?;
                let mut results = vec![];
                let mut batch = vec![];
                for i in 0..number(a, "count", 1) {
                    let one = message(a, i, false).build().map_err(failed)?;
                    if a.contains_key("batch") {
                        batch.push(one);
                        continue;
                    }
                    let receipt = producer.send(one).await.map_err(failed)?;
                    results.push(json!({"msgId": receipt.message_id()}));
                }
                if !batch.is_empty() {
                    for receipt in producer.batch_send(batch).await.map_err(failed)? {
                        results.push(json!({"msgId": receipt.message_id()}));
                    }
                }
                return Ok(json!({"results": results}));
            }
            "transaction" => {
                let producer = self.producers.get(&name).ok_or("no such producer")?;
                let half = message(a, 0, true).build().map_err(failed)?;
                let begun = producer.send_transaction_message(half).await.map_err(failed)?;
                let id = begun.message_id().to_string();
                match text(a, "end").as_str() {
                    "commit" => begun.commit().await.map_err(failed)?,
                    "rollback" => begun.rollback().await.map_err(failed)?,
                    _ => (),
                }
                return Ok(json!({"msgId": id}));
            }
            "dump" => {
                let end = millis() + number(a, "timeout", 0);
                loop {
                    let found = self.seen.lock().unwrap().get(&name).cloned().unwrap_or_default();
                    if found.len() as i64 >= number(a, "min", 0) || millis() > end {
                        return Ok(json!({"messages": found}));
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            "simple" => {
                let mut option = SimpleConsumerOption::default();
                option.set_topics(vec![text(a, "topic")]);
                option.set_consumer_group(text(a, "group"));
                option.set_logging_format(LoggingFormat::Terminal);
                let mut made = SimpleConsumer::new(option, options(a)).map_err(failed)?;
                made.start().await.map_err(failed)?;
                let tags = a.get("tags").cloned().unwrap_or("*".to_string());
                let filter = match a.get("sql") {
                    Some(sql) => FilterExpression::new(FilterType::Sql, sql.clone()),
                    None => FilterExpression::new(FilterType::Tag, tags),
                };
                self.consumers.insert(name, (made, text(a, "topic"), filter));
            }
            "receive" => {
                let (consumer, topic, filter) = self.consumers.get(&name).ok_or("no such consumer")?;
                let invisible = Duration::from_secs(number(a, "invisible", 20) as u64);
                let count = number(a, "count", 16) as i32;
                let found = consumer
                    .receive_with(topic.clone(), filter, count, invisible)
                    .await
                    .map_err(failed)?;
                let messages: Vec<Value> = found.iter().map(told).collect();
                self.views.extend(found.into_iter().map(|one| (one.message_id().to_string(), one)));
                return Ok(json!({"messages": messages}));
            }
            "ack" => {
                let view = self.views.get(&text(a, "msgId")).ok_or("no such message")?;
                self.consumers[&name].0.ack(view).await.map_err(failed)?;
            }
            "stop" => {
                if let Some(found) = self.producers.remove(&name) {
                    found.shutdown().await.map_err(failed)?;
                } else if let Some((found, _, _)) = self.consumers.remove(&name) {
                    found.shutdown().await.map_err(failed)?;
                }
            }
            _ => return Err(format!("unknown command {command}")),
        }
        Ok(json!({"done": true}))
    }
}

fn unquoted(value: &str) -> String {
    let bytes = value.as_bytes();
    let (mut out, mut at) = (vec![], 0);
    while at < bytes.len() {
        if bytes[at] == b'%' {
            out.push(u8::from_str_radix(&value[at + 1..at + 3], 16).unwrap());
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).unwrap()
}

#[tokio::main]
async fn main() {
    let mut peer = Peer {
        producers: HashMap::new(),
        consumers: HashMap::new(),
        views: HashMap::new(),
        seen: Arc::default(),
    };
    println!("{{\"ready\":true}}");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let mut words = line.split('\t');
        let command = words.next().unwrap_or_default();
        let given = words
            .filter_map(|word| word.split_once('='))
            .map(|(key, value)| (key.to_string(), unquoted(value)))
            .collect();
        let answer = peer.perform(command, &given).await.unwrap_or_else(
            |error| json!({"error": "ClientError", "text": error, "rootText": error}),
        );
        // What the client logs goes to stdout as well, so the answer has a line of its own.
        println!("\n{answer}");
        std::io::stdout().flush().unwrap();
    }
}
