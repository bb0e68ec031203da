/* The load and the yardsticks of shaping.py.
 *
 * blaster send ADDRESS PORT IP_BYTES BIT_PER_S SECONDS   UDP datagrams of a constant rate, counted with their IP header
 * blaster receive ADDRESS PORT SECONDS                   counts them by the kernel's receive time; skips the first quarter
 * blaster timer SECONDS                                  lateness of a timerfd of 1 ms, as the emulator's: FIFO, no slack
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static struct sockaddr_in address(const char *host, const char *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    inet_pton(AF_INET, host, &a.sin_addr);
    return a;
}

static int blast(char **argv)
{
    struct sockaddr_in to = address(argv[0], argv[1]);
    int bytes = atoi(argv[2]) - 28, fd = socket(AF_INET, SOCK_DGRAM, 0), size = 1 << 23;
    double gap_ns = atof(argv[2]) * 8e9 / atof(argv[3]);
    int64_t start = now_ns(), end = start + (int64_t)(atof(argv[4]) * 1e9);
    static char payload[65536];
    struct iovec part = {payload, (size_t)bytes};
    struct mmsghdr batch[64];
    memset(batch, 0, sizeof batch);
    for (int i = 0; i < 64; i++)
        batch[i].msg_hdr = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1};
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    connect(fd, (struct sockaddr *)&to, sizeof to);
    for (int64_t sent = 0;;) {
        int64_t now = now_ns();
        if (now >= end)
            return 0;
        /* Never more than 64 at once: what the line cannot take is to be dropped by its own queue. */
        int due = 0;
        while (due < 64 && start + (int64_t)((double)(sent + due) * gap_ns) <= now)
            due++;
        if (due && sendmmsg(fd, batch, (unsigned)due, MSG_DONTWAIT) < 0 && errno != EAGAIN && errno != ENOBUFS && errno != ECONNREFUSED)
            return perror("send"), 1;
        sent += due;
        struct timespec nap = {0, 100000};
        if (gap_ns > 100000)
            nanosleep(&nap, NULL);
    }
}

static int receive(char **argv)
{
    struct sockaddr_in at = address(argv[0], argv[1]);
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1, size = 1 << 25;
    double seconds = atof(argv[2]);
    int64_t first = 0, last = 0, count = 0, begin = 0;
    long length = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at))
        return perror("bind"), 1;
    puts("ready");
    fflush(stdout);
    static char data[64][2048], control[64][128];
    struct iovec parts[64];
    struct mmsghdr batch[64];
    for (;;) {
        struct pollfd watch = {fd, POLLIN, 0};
        if (poll(&watch, 1, count ? 2000 : 20000) <= 0)
            break;
        for (int i = 0; i < 64; i++) {
            parts[i] = (struct iovec){data[i], sizeof data[i]};
            batch[i].msg_hdr = (struct msghdr){
                .msg_iov = &parts[i], .msg_iovlen = 1, .msg_control = control[i], .msg_controllen = sizeof control[i]};
        }
        int got = recvmmsg(fd, batch, 64, MSG_DONTWAIT, NULL);
        double passed = 0;
        for (int i = 0; i < got; i++) {
            struct timespec *t = (struct timespec *)CMSG_DATA(CMSG_FIRSTHDR(&batch[i].msg_hdr));
            int64_t at_ns = t->tv_sec * 1000000000LL + t->tv_nsec;
            if (!begin)
                begin = at_ns;
            passed = (double)(at_ns - begin) / 1e9;
            if (passed < seconds * 0.25 || passed > seconds)
                continue;
            if (!first)
                first = at_ns;
            else
                count++;
            last = at_ns;
            length = batch[i].msg_len + 28;
        }
        if (passed > seconds)
            break;
    }
    printf("{\"packets\": %lld, \"bytes\": %ld, \"seconds\": %.9f}\n", (long long)count, length, (double)(last - first) / 1e9);
    return 0;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int timer(char **argv)
{
    int n = (int)(atof(argv[0]) * 1000), fd = timerfd_create(CLOCK_MONOTONIC, 0);
    int64_t *late = calloc((size_t)n, sizeof *late), due = now_ns();
    struct sched_param priority = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &priority);
    prctl(PR_SET_TIMERSLACK, 1);
    for (int i = 0; i < n; i++) {
        uint64_t fired;
        due += 1000000;
        struct itimerspec at = {.it_value = {due / 1000000000, due % 1000000000}};
        timerfd_settime(fd, TFD_TIMER_ABSTIME, &at, NULL);
        if (read(fd, &fired, sizeof fired) < 0)
            return perror("read"), 1;
        late[i] = now_ns() - due;
    }
    qsort(late, (size_t)n, sizeof *late, compare);
    printf("{\"p50\": %.9f, \"p99\": %.9f}\n", (double)late[n / 2] / 1e9, (double)late[n * 99 / 100] / 1e9);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 7 && !strcmp(argv[1], "send"))
        return blast(argv + 2);
    if (argc == 5 && !strcmp(argv[1], "receive"))
        return receive(argv + 2);
    if (argc == 3 && !strcmp(argv[1], "timer"))
        return timer(argv + 2);
    fprintf(stderr, "usage: blaster send|receive|timer ...\n");
    return 2;
}
