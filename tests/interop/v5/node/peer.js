'use strict';

// Apache's v5 client for Node.js as a program the tests drive: a command a line, a line of JSON an answer.
//
// The commands are the same in every language (../../v5.py).

const readline = require('readline');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const quiet = { info() {}, debug() {}, warn: console.error, error: console.error };
const made = new Map();
const seen = new Map();
const views = new Map();
const sleep = millis => new Promise(resolve => setTimeout(resolve, millis));

function options(a) {
  const found = { endpoints: a.endpoints, namespace: a.namespace || '', logger: quiet, sslEnabled: Boolean(a.tls) };
  if (a.accessKey) found.sessionCredentials = { accessKey: a.accessKey, accessSecret: a.secretKey };
  return found;
}

function filter(a) {
  return a.sql ? new FilterExpression(a.sql, FilterType.SQL) : new FilterExpression(a.tags || '*');
}

async function start(name, client) {
  await client.startup();
  made.set(name, client);
  return { done: true };
}

const commands = {
  async producer(a) {
    seen.set(a.name, []);
    const check = async view => {
      seen.get(a.name).push(told(view));
      return TransactionResolution[a.check || 'TRANSACTION_RESOLUTION_UNSPECIFIED'];
    };
    return await start(a.name, new Producer({ ...options(a), topics: [ a.topic ], topic: a.topic, checker: { check } }));
  },

  async send(a) {
    const results = [];
    for (let i = 0; i < Number(a.count || 1); i++) {
      const receipt = await made.get(a.name).send(message(a, i));
      results.push({ msgId: receipt.messageId, recallHandle: receipt.recallHandle });
    }
    return { results };
  },

  async transaction(a) {
    const producer = made.get(a.name);
    const transaction = producer.beginTransaction();
    const receipt = await producer.send(message(a, 0), transaction);
    if (a.end === 'commit') await transaction.commit();
    if (a.end === 'rollback') await transaction.rollback();
    return { msgId: receipt.messageId };
  },

  async recall(a) {
    return { msgId: (await made.get(a.name).recallMessage(a.topic, a.handle)).messageId };
  },

  async push(a) {
    seen.set(a.name, []);
    const failUntil = Number(a.failUntil || 0);
    const consume = async view => {
      seen.get(a.name).push(told(view));
      return view.deliveryAttempt <= failUntil ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    };
    const subscriptions = new Map([[ a.topic, filter(a) ]]);
    return await start(a.name, new PushConsumer({
      ...options(a), consumerGroup: a.group, subscriptions, messageListener: { consume },
    }));
  },

  async dump(a) {
    const end = Date.now() + Number(a.timeout || 0);
    while (seen.get(a.name).length < Number(a.min || 0) && Date.now() < end) await sleep(10);
    return { messages: seen.get(a.name) };
  },

  async simple(a) {
    return await start(a.name, new SimpleConsumer({
      ...options(a), consumerGroup: a.group, subscriptions: new Map([[ a.topic, filter(a) ]]),
      awaitDuration: Number(a.await || 5) * 1000,
    }));
  },

  async receive(a) {
    const found = await made.get(a.name).receive(Number(a.count || 16), Number(a.invisible || 20) * 1000);
    for (const view of found) views.set(view.messageId, view);
    return { messages: found.map(told) };
  },

  async ack(a) {
    await made.get(a.name).ack(views.get(a.msgId));
    return { done: true };
  },

  async change(a) {
    await made.get(a.name).changeInvisibleDuration(views.get(a.msgId), Number(a.invisible || 10) * 1000);
    return { done: true };
  },

  async stop(a) {
    await made.get(a.name).shutdown();
    made.delete(a.name);
    return { done: true };
  },
};

function message(a, i) {
  const found = { topic: a.topic, body: Buffer.from(`${a.body || 'm'}-${i}`) };
  if (a.tag) found.tag = a.tag;
  if (a.key) found.keys = [ a.key ];
  if (a.order) found.messageGroup = a.order;
  if (a.delay) found.deliveryTimestamp = new Date(Date.now() + Number(a.delay));
  if (a.priority) found.priority = Number(a.priority);
  const properties = Object.keys(a).filter(key => key.startsWith('property.'));
  if (properties.length) found.properties = new Map(properties.map(key => [ key.slice('property.'.length), a[key] ]));
  return found;
}

function told(view) {
  return {
    body: view.body.toString(),
    msgId: view.messageId,
    topic: view.topic,
    tag: view.tag || null,
    keys: view.keys,
    order: view.messageGroup || null,
    properties: Object.fromEntries(view.properties),
    attempt: view.deliveryAttempt,
    bornHost: view.bornHost,
    at: Date.now(),
  };
}

async function main() {
  process.stdout.write('{"ready":true}\n');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const words = line.split('\t');
    const given = {};
    for (const word of words.slice(1)) {
      const at = word.indexOf('=');
      given[word.slice(0, at)] = decodeURIComponent(word.slice(at + 1));
    }
    let answer;
    try {
      answer = await commands[words[0]](given);
    } catch (error) {
      console.error(error);
      answer = { error: error.name, text: String(error.message), rootText: String(error.message) };
      if (Number.isInteger(error.code)) answer.code = error.code;
    }
    process.stdout.write(JSON.stringify(answer) + '\n');
  }
  process.exit(0);
}

main();
