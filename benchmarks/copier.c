/* The floor of tap.py: joins two TAP interfaces, one frame a read and one a write, and does nothing else.
 *
 * usage: copier PID IFNAME PID IFNAME   (each interface is made in the network namespace of its process) */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int make(const char *pid, const char *name)
{
    char path[64];
    struct ifreq request;
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
    int there = open(path, O_RDONLY | O_CLOEXEC);
    if (home < 0 || there < 0 || setns(there, CLONE_NEWNET)) {
        perror(path);
        exit(1);
    }
    int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    memset(&request, 0, sizeof request);
    snprintf(request.ifr_name, IFNAMSIZ, "%s", name);
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    if (tap < 0 || ioctl(tap, TUNSETIFF, &request) || setns(home, CLONE_NEWNET)) {
        perror(name);
        exit(1);
    }
    close(home);
    close(there);
    return tap;
}

int main(int argc, char **argv)
{
    static char frame[65536];
    if (argc != 5) {
        fprintf(stderr, "usage: copier PID IFNAME PID IFNAME\n");
        return 2;
    }
    struct pollfd ends[2] = {{make(argv[1], argv[2]), POLLIN, 0}, {make(argv[3], argv[4]), POLLIN, 0}};
    puts("ready");
    fflush(stdout);
    for (;;) {
        if (poll(ends, 2, -1) < 0) {
            return 1;
        }
        for (int from = 0; from < 2; from++) {
            for (int taken = 0; taken < 64; taken++) {
                ssize_t n = read(ends[from].fd, frame, sizeof frame);
                if (n <= 0) {
                    break;
                }
                if (write(ends[1 - from].fd, frame, (size_t)n) < 0) {
                    /* The other interface is down: the frame is gone, as on a wire. */
                }
            }
        }
    }
}
