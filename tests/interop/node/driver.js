'use strict';

// A Node.js client that the tests drive: one command per line on stdin, one JSON line per command on stdout.
//
// A command is words separated by tabs: its name, then key=value with URL-encoded values, as in
// ../java/src/Driver.java. Started producers and consumers are kept under the name the command gives.

const crypto = require('crypto');
const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const SHOWN_BODY = 2000;
const quiet = { info() {}, debug() {}, warn: console.error, error: console.error };
const producers = new Map();
const consumers = new Map();
const sleep = millis => new Promise(resolve => setTimeout(resolve, millis));

// What every producer and consumer gets: name servers by address, no address server of a cloud.
function options(a, kind) {
  return {
    nameSrv: a.namesrv.split(';'),
    httpclient: { request() { throw new Error('no address server is asked'); } },
    logger: quiet,
    instanceName: `${kind}-${a.name}`,
    namespace: a.namespace || '',
    accessKey: a.accessKey,
    secretKey: a.secretKey,
    pollNameServerInteval: 1000,
    heartbeatBrokerInterval: 1000,
    persistConsumerOffsetInterval: 500,
    rebalanceInterval: 1000,
  };
}

function one(table, a) {
  if (!table.has(a.name)) throw new Error(`nothing is called ${a.name}`);
  return table.get(a.name);
}

const commands = {
  async producer(a) {
    const retries = Number(a.retries || 2);
    const made = new Producer({
      ...options(a, 'producer'),
      producerGroup: a.group || `PG_${a.name}`,
      retryTimesWhenSendFailed: retries,
    });
    made.on('error', error => console.error(error));
    await made.ready();
    producers.set(a.name, made);
    return { clientId: made.clientId };
  },

  async send(a) {
    const results = [];
    for (const message of messages(a)) {
      results.push(sent(await one(producers, a).send(message)));
    }
    return { results };
  },

  async drop(a) {
    await one(producers, a).close();
    producers.delete(a.name);
    return { dropped: true };
  },

  async consumer(a) {
    const made = new Consumer({
      ...options(a, 'consumer'),
      consumerGroup: a.group,
      isBroadcast: a.model === 'broadcasting',
      consumeFromWhere: a.from || 'CONSUME_FROM_FIRST_OFFSET',
      maxReconsumeTimes: Number(a.maxReconsume || 16),
    });
    const seen = [];
    const errors = [];
    made.on('error', error => errors.push(String(error.message)));
    const failUntil = Number(a.failUntil || 0);
    const selector = a.sql ? { expressionType: 'SQL92', subString: a.sql } : a.expression || '*';
    made.subscribe(a.topic, selector, async (message, queue) => {
      seen.push(told(message, queue));
      if (message.reconsumeTimes < failUntil) throw new Error('not yet');
    });
    consumers.set(a.name, { made, seen, errors });
    await made.ready();
    return { clientId: made.clientId };
  },

  // What a consumer has seen and which queues it has, once `min` messages are there or time is up.
  async dump(a) {
    const { made, seen, errors } = one(consumers, a);
    const end = Date.now() + Number(a.timeout || 0);
    while (seen.length < Number(a.min || 0) && Date.now() < end) await sleep(20);
    const held = Array.from(made.processQueueTable.values(), item => item.messageQueue);
    const queues = held.map(queue => `${queue.topic}@${queue.brokerName}@${queue.queueId}`);
    return { messages: seen, queues: queues.sort(), errors };
  },

  async stop(a) {
    await one(consumers, a).made.close();
    consumers.delete(a.name);
    return { stopped: true };
  },
};

// Messages 0..count-1; the body is "body-i", or `size` bytes of a repeated text.
function messages(a) {
  const made = [];
  for (let i = 0; i < Number(a.count || 1); i++) {
    let body = `${a.body || 'm'}-${i}`;
    if (a.size) body = Buffer.from(Array.from({ length: Number(a.size) }, (_, at) => 97 + (at % 26)));
    const tags = a.tags ? a.tags.split(',') : null;
    const message = tags ? new Message(a.topic, tags[i % tags.length], body) : new Message(a.topic, body);
    if (a.keys) message.keys = [ `${a.keys}-${i}` ];
    if (a.delay) message.delayTimeLevel = Number(a.delay);
    if (a.sharding) message.shardingKey = a.sharding;
    for (const key of Object.keys(a).filter(key => key.startsWith('property.'))) {
      message.properties[key.slice('property.'.length)] = a[key];
    }
    made.push(message);
  }
  return made;
}

function sent(result) {
  return {
    status: result.sendStatus,
    msgId: result.msgId,
    offsetMsgId: result.msgId, // it makes no ids of its own
    queueId: Number(result.messageQueue.queueId),
    brokerName: result.messageQueue.brokerName,
    queueOffset: result.queueOffset,
  };
}

function told(message, queue) {
  const body = message.body || Buffer.alloc(0);
  return {
    topic: message.topic,
    queueId: message.queueId,
    queueOffset: message.queueOffset,
    brokerName: queue ? queue.brokerName : '',
    msgId: message.msgId,
    commitLogOffset: message.commitLogOffset,
    reconsumeTimes: message.reconsumeTimes,
    bornTimestamp: message.bornTimestamp,
    storeTimestamp: message.storeTimestamp,
    bornHost: message.bornHost,
    storeHost: message.storeHost,
    sysFlag: message.sysFlag,
    flag: message.flag,
    bodyCRC: message.bodyCRC,
    storeSize: message.storeSize,
    tags: message.tags,
    keys: message.keys,
    properties: message.properties,
    size: body.length,
    hash: crypto.createHash('md5').update(body).digest('hex'),
    body: body.length > SHOWN_BODY ? '' : body.toString(),
  };
}

async function perform(line) {
  const [ name, ...words ] = line.split('\t');
  const given = {};
  for (const word of words) {
    const equals = word.indexOf('=');
    given[word.slice(0, equals)] = decodeURIComponent(word.slice(equals + 1));
  }
  if (!commands[name]) throw new Error(`unknown command ${name}`);
  return await commands[name](given);
}

async function main() {
  const answer = told => process.stdout.write(`${JSON.stringify(told)}\n`);
  answer({ ready: true });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      answer(await perform(line));
    } catch (error) {
      console.error(error);
      const text = String(error.message);
      const told = { error: error.name, text, rootText: text };
      if (typeof error.code === 'number') Object.assign(told, { code: error.code, remark: text });
      answer(told);
    }
  }
  process.exit(0); // the test ended; the client's timers must not keep the process
}

// A library's unhandled rejection must not look like an answer, nor end the process.
process.on('unhandledRejection', error => console.error(error));
main();
