// The first process of a guest: runs the programs of /plan one after the other, and switches the machine off.
//
// Guarantee: the last line on the serial port is "EMU-END ok" if every program ended with status 0, and otherwise
// "EMU-END failed: " and their names. A line of the plan is tab-separated: a name, NAME=VALUE for the environment as
// often as needed, and the program with its arguments.
// Assumption: it is process 1 of an emulated machine that nobody else uses; Bochs is told to quit through a port.
#include <fcntl.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

void mount_at(const char* type, const char* path) {
  mkdir(path, 0755);
  if (mount(type, path, type, 0, nullptr) != 0) std::perror(path);
}

std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> found;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) found.push_back(field);
  return found;
}

double uptime() {
  double seconds = 0;
  std::ifstream("/proc/uptime") >> seconds;
  return seconds;
}

// Whether it ended with status 0.
bool run(const std::vector<std::string>& line) {
  std::printf("EMU-RUN %s\n", line[0].c_str());
  std::fflush(stdout);
  const double begun = uptime();
  const pid_t child = fork();
  if (child == 0) {
    std::size_t first = 1;
    while (first < line.size() && line[first].find('=') != std::string::npos && line[first][0] != '/') {
      putenv(const_cast<char*>(line[first++].c_str()));
    }
    std::vector<char*> arguments;
    for (std::size_t i = first; i < line.size(); ++i) arguments.push_back(const_cast<char*>(line[i].c_str()));
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
    std::perror(arguments[0]);
    _exit(127);
  }
  int status = -1;
  if (child > 0) waitpid(child, &status, 0);
  std::printf("EMU-RAN %s: %s %d, %.1f s of the guest\n", line[0].c_str(), WIFSIGNALED(status) ? "signal" : "status",
              WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), uptime() - begun);
  return status == 0;
}

[[noreturn]] void switch_off() {
  std::fflush(stdout);
  tcdrain(STDOUT_FILENO);
  usleep(100'000);  // what the port still holds
  if (ioperm(0x8900, 1, 1) == 0) {
    for (const char letter : std::string("Shutdown")) outb(static_cast<unsigned char>(letter), 0x8900);
  }
  reboot(RB_POWER_OFF);
  for (;;) pause();
}

}  // namespace

int main() {
  if (getpid() != 1) return 2;  // it would switch off the machine of whoever tried it
  mount_at("proc", "/proc");
  mount_at("sysfs", "/sys");
  mount_at("devtmpfs", "/dev");
  mkdir("/dev/shm", 0777);
  mount_at("tmpfs", "/dev/shm");
  mkdir("/tmp", 01777);
  std::printf("\nEMU-BEGIN %.1f s after the kernel\n", uptime());

  std::string failed;
  std::ifstream plan("/plan");
  for (std::string line; std::getline(plan, line);) {
    const std::vector<std::string> program = fields(line);
    if (program.size() >= 2 && !run(program)) failed += (failed.empty() ? "" : ", ") + program[0];
  }
  if (failed.empty()) {
    std::printf("EMU-END ok\n");
  } else {
    std::printf("EMU-END failed: %s\n", failed.c_str());
  }
  switch_off();
}
