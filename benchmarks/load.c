/* Raw load on a broker: sends, batches and pulls as RocketMQ's remoting frames, from one thread.

   load send HOST PORT TOPIC key=value...    load pull HOST PORT TOPIC key=value...

   send: connections=1 inflight=1 body=128 batch=1 queues=8 warmup=0 count=0 seconds=5 pid=0
   pull: connections=1 queues=8 from=0 count=0 pid=0 group=NAME
         drains every queue from offset `from`, 32 messages a pull, one pull in flight per queue.

   Both: tls=1 speaks TLS and believes every certificate. send: access=NAME secret=TEXT signs each request, batches not.
   For these two it is compiled with -DCLOSED -lssl -lcrypto.

   Closed loop: each connection keeps `inflight` requests on their way. One JSON line on stdout:
   messages, seconds, latency percentiles of requests in microseconds, refused requests, and the CPU seconds
   (user and system, all threads) that process `pid` used meanwhile. The warm-up is not counted. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef CLOSED
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#else
typedef void SSL;
#endif

enum { SLOT_BASE = 1000000, PULL_MESSAGES = 32, READ_SIZE = 1 << 16, FINE_US = 100000, COARSE = 100000 };

typedef struct {
    SSL *tls; /* NULL: plain */
    int fd, have, size, capacity; /* bytes held of an unfinished frame, and its whole size */
    char *frame;
    char *out; /* requests made while one read is handled: one write */
    size_t out_len, out_capacity;
} Conn;

typedef struct {
    double sent_at;
    int queue; /* of a pull */
    long offset;
} Slot;

static int connections = 1, inflight = 1, body_size = 128, batch = 1, queues = 8, pid = 0;
static long warmup = 0, count = 0, from_offset = 0, serial = 0;
static double seconds = 5;
static const char *topic, *group = "bench_raw", *access_key, *secret;
static int use_tls;
static int pulling;

static Conn *conns;
static Slot *slots;
static char *template_frame; /* of a send */
static size_t template_len, opaque_at, queue_at, unique_at, unique_stride;
static char *content; /* what is signed: the values of the ext fields by their names' order, and the body */
static size_t content_len, content_queue_at, content_unique_at, signature_at;
static long done_messages, errors, live_queues, sent_messages;
static char first_error[400];
static long fine[FINE_US], coarse[COARSE]; /* 1 us below 0.1 s, then 100 us */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double cpu_seconds(void) {
    char path[64], text[1024];
    if (!pid) return 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) fail("the measured process is gone");
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    unsigned long user, system;
    if (sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        fail("stat");
    return (double)(user + system) / sysconf(_SC_CLK_TCK);
}

static void count_latency(double span) {
    long us = span * 1e6;
    if (us < FINE_US) fine[us < 0 ? 0 : us]++;
    else {
        long at = (us - FINE_US) / 100;
        coarse[at < COARSE ? at : COARSE - 1]++;
    }
}

static long percentile(double share) {
    long total = 0, seen = 0;
    for (int i = 0; i < FINE_US; i++) total += fine[i];
    for (int i = 0; i < COARSE; i++) total += coarse[i];
    long wanted = total * share;
    for (int i = 0; i < FINE_US; i++)
        if ((seen += fine[i]) > wanted) return i;
    for (int i = 0; i < COARSE; i++)
        if ((seen += coarse[i]) > wanted) return FINE_US + 100L * i;
    return 0;
}

static void put_u32(char *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

static uint32_t get_u32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

/* A frame around a header; returns its size. */
static size_t wrap(char *at, const char *header, size_t header_len, size_t body_len) {
    put_u32(at, 4 + header_len + body_len);
    put_u32(at + 4, header_len); /* type 0: JSON */
    memcpy(at + 8, header, header_len);
    return 8 + header_len;
}

static void make_content(long born) {
    content = malloc(2048 + body_size);
    content_len = snprintf(
        content, 2048,
        "%sbench_raw%sTBW1028@0%ld0000UNIQ_KEY\0017F000001ABCD0DA14E0C0000########\002WAIT\001true\002TAGS\001TagA\0020false"
        "falsebench", access_key, topic, born);
    content_queue_at = (char *)memmem(content, content_len, "TBW1028@", 8) + 7 - content;
    content_unique_at = (char *)memmem(content, content_len, "########", 8) - content;
    memset(content + content_len, 'x', body_size);
    content_len += body_size;
    signature_at = (char *)memmem(template_frame, template_len, "****", 4) - template_frame;
}

static void sign(char *frame) {
#ifdef CLOSED
    unsigned char digest[EVP_MAX_MD_SIZE], text[64];
    unsigned int size;
    content[content_queue_at] = frame[queue_at];
    memcpy(content + content_unique_at, frame + unique_at, 8);
    HMAC(EVP_sha1(), secret, strlen(secret), (unsigned char *)content, content_len, digest, &size);
    EVP_EncodeBlock(text, digest, size);
    memcpy(frame + signature_at, text, 28);
#endif
}

static void make_template(void) {
    char header[2048];
    /* As Java's client writes it: the single message's properties, or none for a batch. */
    const char *properties =
        batch > 1 ? "" : "UNIQ_KEY\\u00017F000001ABCD0DA14E0C0000########\\u0002WAIT\\u0001true\\u0002TAGS\\u0001TagA\\u0002";
    char keys[512] = "";
    long born = time(NULL);
    if (access_key)
        snprintf(keys, sizeof keys, ",\"AccessKey\":\"%s\",\"Signature\":\"****************************\"", access_key);
    int header_len = snprintf(
        header, sizeof header,
        "{\"code\":%d,\"extFields\":{\"a\":\"bench_raw\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"8\",\"e\":\"@\",\"f\":\"0\","
        "\"g\":\"%ld000\",\"h\":\"0\",\"i\":\"%s\",\"j\":\"0\",\"k\":\"false\",\"m\":\"%s\",\"n\":\"bench\"%s},\"flag\":0,"
        "\"language\":\"JAVA\",\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":475}",
        batch > 1 ? 320 : 310, topic, born, properties, batch > 1 ? "true" : "false", keys, SLOT_BASE);
    static const char inner[] = "UNIQ_KEY\0017F000001ABCD0DA14E0C0000########\002WAIT\001true\002";
    size_t inner_len = sizeof inner - 1, message_len = 22 + body_size + inner_len;
    size_t body_len = batch > 1 ? batch * message_len : (size_t)body_size;
    template_frame = malloc(8 + header_len + body_len);
    template_len = wrap(template_frame, header, header_len, body_len);
    if (batch == 1) memset(template_frame + template_len, 'x', body_size);
    for (int i = 0; batch > 1 && i < batch; i++) { /* size, magic, crc, flag, body, properties */
        char *at = template_frame + template_len + i * message_len;
        memset(at, 0, message_len);
        put_u32(at, message_len);
        put_u32(at + 16, body_size);
        memset(at + 20, 'x', body_size);
        at[20 + body_size] = inner_len >> 8;
        at[21 + body_size] = inner_len & 255;
        memcpy(at + 22 + body_size, inner, inner_len);
    }
    template_len += body_len;
    opaque_at = (char *)memmem(template_frame, template_len, "\"opaque\":", 9) + 9 - template_frame;
    queue_at = (char *)memmem(template_frame, template_len, "\"e\":\"@\"", 7) + 5 - template_frame;
    const char *unique = memmem(template_frame, template_len, "########", 8);
    unique_at = unique - template_frame;
    unique_stride = message_len;
    if (access_key) make_content(born);
}

static char *grow(Conn *conn, size_t more) {
    if (conn->out_len + more > conn->out_capacity) {
        conn->out_capacity = 2 * (conn->out_len + more);
        conn->out = realloc(conn->out, conn->out_capacity);
        if (!conn->out) fail("memory");
    }
    return conn->out + conn->out_len;
}

static void put_digits(char *at, long value, int digits) {
    for (int i = digits - 1; i >= 0; i--, value /= 10) at[i] = '0' + value % 10;
}

static void ask_send(Conn *conn, int slot) {
    static const char hex[] = "0123456789ABCDEF";
    char *at = grow(conn, template_len);
    memcpy(at, template_frame, template_len);
    put_digits(at + opaque_at, SLOT_BASE + slot, 7);
    at[queue_at] = '0' + serial % queues;
    char *unique = at + unique_at;
    for (int i = 0; i < batch; i++) {
        long id = serial * batch + i;
        for (int d = 7; d >= 0; d--, id >>= 4) unique[d] = hex[id & 15];
        unique += unique_stride;
    }
    if (content) sign(at);
    serial++;
    sent_messages += batch;
    conn->out_len += template_len;
    slots[slot].sent_at = now();
}

static void ask_pull(Conn *conn, int slot) {
    char header[1024];
    Slot *pull = &slots[slot];
    int header_len = snprintf(
        header, sizeof header,
        "{\"code\":11,\"extFields\":{\"consumerGroup\":\"%s\",\"topic\":\"%s\",\"queueId\":\"%d\",\"queueOffset\":\"%ld\","
        "\"maxMsgNums\":\"%d\",\"sysFlag\":\"4\",\"commitOffset\":\"0\",\"suspendTimeoutMillis\":\"0\",\"subscription\":\"*\","
        "\"subVersion\":\"0\",\"expressionType\":\"TAG\",\"bname\":\"bench\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,"
        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":475}",
        group, topic, pull->queue, pull->offset, PULL_MESSAGES, SLOT_BASE + slot);
    conn->out_len += wrap(grow(conn, 8 + header_len), header, header_len, 0);
    pull->sent_at = now();
}

static ssize_t read_some(Conn *conn, char *data, size_t size) {
#ifdef CLOSED
    if (conn->tls) {
        int got = SSL_read(conn->tls, data, size);
        if (got > 0) return got;
        return SSL_get_error(conn->tls, got) == SSL_ERROR_WANT_READ ? -2 : -1; /* a ticket, and no data */
    }
#endif
    return read(conn->fd, data, size);
}

static int more_is_there(Conn *conn) {
#ifdef CLOSED
    if (conn->tls) return SSL_pending(conn->tls) > 0;
#endif
    return 0;
}

static ssize_t write_some(Conn *conn, const char *data, size_t size) {
#ifdef CLOSED
    if (conn->tls) return SSL_write(conn->tls, data, size);
#endif
    return write(conn->fd, data, size);
}

static void begin_tls(Conn *conn) {
#ifdef CLOSED
    static SSL_CTX *context;
    if (!context) {
        context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
        SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
    }
    conn->tls = SSL_new(context);
    SSL_set_fd(conn->tls, conn->fd);
    if (SSL_connect(conn->tls) != 1) fail("TLS handshake");
#else
    fail("compiled without TLS");
#endif
}

static void flush_out(Conn *conn) {
    size_t at = 0;
    while (at < conn->out_len) { /* blocking sockets: the broker reads what is in flight */
        ssize_t wrote = write_some(conn, conn->out + at, conn->out_len - at);
        if (wrote <= 0) fail("write");
        at += wrote;
    }
    conn->out_len = 0;
}

static long field(const char *header, size_t len, const char *name) {
    char *at = memmem(header, len, name, strlen(name));
    if (!at) return -1;
    at += strlen(name);
    if (*at == '"') at++;
    return strtol(at, NULL, 10);
}

static void note_error(const char *header, size_t len, long code) {
    if (!errors++) {
        const char *remark = memmem(header, len, "\"remark\":\"", 10);
        int size = remark ? (int)(header + len - remark - 10) : 0;
        snprintf(first_error, sizeof first_error, "code %ld: %.*s", code, size > 200 ? 200 : size, remark ? remark + 10 : "");
        for (char *c = first_error; *c; c++)
            if (*c == '"' || *c == '\\' || *c < ' ') *c = '\'';
    }
}

/* One complete frame after its length; says whether another request may follow in its slot. */
static int take_reply(Conn *conn, int counted) {
    char *header = conn->frame + 4;
    size_t header_len = get_u32(conn->frame) & 0xFFFFFF;
    long code = field(header, header_len, "\"code\":");
    int slot = field(header, header_len, "\"opaque\":") - SLOT_BASE;
    if (slot < 0 || slot >= connections * inflight) return -1; /* a request of the broker's own */
    if (counted) count_latency(now() - slots[slot].sent_at);
    if (!pulling) {
        if (code) note_error(header, header_len, code);
        else done_messages += batch;
        return slot;
    }
    if (code == 19) { /* nothing there: this queue is drained */
        live_queues--;
        return -1;
    }
    if (code && code != 20) {
        note_error(header, header_len, code);
        live_queues--;
        return -1;
    }
    for (char *at = header + header_len; at < conn->frame + conn->size;) {
        uint32_t size = get_u32(at);
        if (size < 8) fail("record");
        at += size;
        done_messages++;
    }
    slots[slot].offset = field(header, header_len, "\"nextBeginOffset\":");
    return slot;
}

static void handle_bytes(Conn *conn, const char *data, ssize_t size, int counted, int go_on) {
    while (size > 0) {
        static char prefix[4];
        if (conn->size == 0) { /* in the length field */
            if (!conn->frame) conn->frame = malloc(conn->capacity = READ_SIZE);
            conn->frame[conn->have++] = *data++;
            size--;
            if (conn->have < 4) continue;
            memcpy(prefix, conn->frame, 4);
            conn->size = get_u32(prefix);
            conn->have = 0;
            if (conn->size > conn->capacity) conn->frame = realloc(conn->frame, conn->capacity = conn->size);
            continue;
        }
        int part = conn->size - conn->have < size ? conn->size - conn->have : size;
        memcpy(conn->frame + conn->have, data, part);
        conn->have += part;
        data += part;
        size -= part;
        if (conn->have < conn->size) return;
        int slot = take_reply(conn, counted);
        conn->have = conn->size = 0;
        if (slot < 0) continue;
        if (pulling) ask_pull(conn, slot);
        else if (go_on && (!count || sent_messages < count)) ask_send(conn, slot);
    }
}

/* Runs until `limit` messages were answered (0: until `until`). */
static void run(int epoll, long limit, double until, int counted) {
    static char data[READ_SIZE];
    struct epoll_event events[256];
    while (1) {
        if (limit && done_messages + errors * batch >= limit) return;
        if (pulling && !live_queues) return;
        if (!limit && now() >= until) return;
        int ready = epoll_wait(epoll, events, 256, 10000);
        if (ready == 0) {
            fprintf(stderr, "no reply for 10 s\n");
            exit(1);
        }
        for (int i = 0; i < ready; i++) {
            Conn *conn = &conns[events[i].data.u32];
            do {
                ssize_t size = read_some(conn, data, sizeof data);
                if (size == -2) break;
                if (size <= 0) fail("the broker closed the connection");
                handle_bytes(conn, data, size, counted, 1);
            } while (more_is_there(conn));
            if (conn->out_len) flush_out(conn);
        }
    }
}

static void open_connections(int epoll, const char *host, int port) {
    conns = calloc(connections, sizeof *conns);
    slots = calloc((size_t)connections * inflight, sizeof *slots);
    for (int i = 0; i < connections; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
        if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail("host");
        int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
        if (fd < 0 || connect(fd, (void *)&address, sizeof address)) fail("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        conns[i].fd = fd;
        if (use_tls) begin_tls(&conns[i]);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    }
}

static void first_requests(void) {
    for (int i = 0; i < connections; i++) {
        for (int w = 0; w < inflight; w++) {
            int slot = i * inflight + w;
            if (pulling) {
                if (slot >= queues) break;
                slots[slot] = (Slot){.queue = slot, .offset = from_offset};
                live_queues++;
                ask_pull(&conns[i], slot);
            } else ask_send(&conns[i], slot);
        }
        flush_out(&conns[i]);
    }
}

static void read_arguments(int argc, char **argv) {
    for (int i = 5; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value) fail("key=value");
        *value++ = 0;
        const char *key = argv[i];
        if (!strcmp(key, "connections")) connections = atoi(value);
        else if (!strcmp(key, "inflight")) inflight = atoi(value);
        else if (!strcmp(key, "body")) body_size = atoi(value);
        else if (!strcmp(key, "batch")) batch = atoi(value);
        else if (!strcmp(key, "queues")) queues = atoi(value);
        else if (!strcmp(key, "warmup")) warmup = atol(value);
        else if (!strcmp(key, "count")) count = atol(value);
        else if (!strcmp(key, "from")) from_offset = atol(value);
        else if (!strcmp(key, "seconds")) seconds = atof(value);
        else if (!strcmp(key, "pid")) pid = atoi(value);
        else if (!strcmp(key, "group")) group = value;
        else if (!strcmp(key, "tls")) use_tls = atoi(value);
        else if (!strcmp(key, "access")) access_key = value;
        else if (!strcmp(key, "secret")) secret = value;
        else fail(key);
    }
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: load send|pull HOST PORT TOPIC key=value...\n");
        return 2;
    }
    pulling = !strcmp(argv[1], "pull");
    topic = argv[4];
    read_arguments(argc, argv);
    if (pulling) inflight = (queues + connections - 1) / connections;
    else make_template();
    int epoll = epoll_create1(0);
    open_connections(epoll, argv[2], atoi(argv[3]));
    if (count) count += warmup;
    double cpu = cpu_seconds(), start = now();
    first_requests();
    if (warmup) {
        run(epoll, warmup, 0, 0);
        cpu = cpu_seconds();
        start = now();
    }
    long before = done_messages;
    run(epoll, pulling ? 0 : count, start + (pulling ? 600 : seconds), 1);
    double took = now() - start;
    cpu = cpu_seconds() - cpu;
    printf("{\"messages\":%ld,\"seconds\":%.6f,\"p50_us\":%ld,\"p99_us\":%ld,\"p999_us\":%ld,\"errors\":%ld,"
           "\"first_error\":\"%s\",\"cpu_s\":%.3f}\n",
           done_messages - before, took, percentile(0.5), percentile(0.99), percentile(0.999), errors, first_error, cpu);
    return 0;
}
