# A module for NixOS: imports = [ ./frevo.nix ];
#
#   services.frevo = {
#     enable = true;
#     settings.server.name = "OFFICE";
#     shares.staff = { path = "/srv/staff"; allow = [ "@staff" ]; run_as = "user"; };
#     accounts.ann = { passwordFile = "/run/secrets/ann"; groups = [ "staff" ]; };
#   };
#
# The files with passwords belong to root, who alone may read them (mode 0600).
{ config, lib, pkgs, ... }:

let
  cfg = config.services.frevo;
  toml = pkgs.formats.toml { };
  shares = lib.mapAttrsToList (name: keys: { inherit name; } // keys) cfg.shares;
  file = toml.generate "frevo.toml" (cfg.settings // { share = shares; });
  program = "${cfg.package}/bin/frevo";
  # Accounts that are there already are only changed if something differs.
  account = name: keys: ''
    ${program} user --config ${file} add ${lib.escapeShellArg name} --ensure \
      --password-file ${lib.escapeShellArg keys.passwordFile}
    ${program} user --config ${file} groups ${lib.escapeShellArgs ([ name ] ++ keys.groups)}
    ${program} user --config ${file} ${if keys.enable then "enable" else "disable"} ${lib.escapeShellArg name}
  '';
in
{
  options.services.frevo = {
    enable = lib.mkEnableOption "the Frevo SMB file server";

    package = lib.mkOption {
      type = lib.types.package;
      description = "The package with bin/frevo.";
    };

    settings = lib.mkOption {
      type = toml.type;
      default = { };
      description = "Sections of frevo.toml but for shares: docs/configuration.md.";
    };

    shares = lib.mkOption {
      type = lib.types.attrsOf toml.type;
      default = { };
      description = "Keys of each share; path is needed.";
    };

    openFirewall = lib.mkOption {
      type = lib.types.bool;
      default = false;
      description = "Opens the ports of SMB and of its announcement on the local network.";
    };

    accounts = lib.mkOption {
      default = { };
      description = "Accounts. One that is taken out of here stays: frevo user rm.";
      type = lib.types.attrsOf (lib.types.submodule {
        options = {
          passwordFile = lib.mkOption {
            type = lib.types.str;
            description = "File with the password, outside of the store.";
          };
          groups = lib.mkOption {
            type = lib.types.listOf lib.types.str;
            default = [ ];
          };
          enable = lib.mkOption {
            type = lib.types.bool;
            default = true;
            description = "False for an account that may not log on.";
          };
        };
      });
    };
  };

  config = lib.mkIf cfg.enable {
    environment.systemPackages = [ cfg.package ];
    environment.etc."frevo/frevo.toml".source = file;

    networking.firewall = lib.mkIf cfg.openFirewall {
      allowedTCPPorts = [ 445 5357 ];
      allowedUDPPorts = [ 3702 5353 ];
    };

    systemd.services.frevo = {
      description = "Frevo SMB file server";
      wantedBy = [ "multi-user.target" ];
      wants = [ "network-online.target" ];
      after = [ "network-online.target" ];
      # The server is confined to the folders of its shares at its start, so others take a restart.
      restartTriggers = [ file ];
      preStart = lib.concatStringsSep "\n" (lib.mapAttrsToList account cfg.accounts);
      serviceConfig = {
        Type = "notify";
        NotifyAccess = "main";
        ExecStart = "${program} serve --config ${file} --log journald";
        ExecReload = "${program} reload --config ${file} --pid $MAINPID";
        Restart = "on-failure";
        RestartPreventExitStatus = "2 3 4";
        TimeoutStopSec = 30;
        KillMode = "mixed";
        FileDescriptorStoreMax = 64;
        StateDirectory = "frevo";
        StateDirectoryMode = "0700";
        RuntimeDirectory = "frevo";
        RuntimeDirectoryMode = "0700";
        LogsDirectory = "frevo";
        LogsDirectoryMode = "0700";
        LimitNOFILE = 1048576;
        LimitCORE = 0;
        MemorySwapMax = 0;
        # As contrib/frevo.service has it.
        CapabilityBoundingSet = [
          "CAP_NET_BIND_SERVICE" "CAP_DAC_OVERRIDE" "CAP_DAC_READ_SEARCH" "CAP_FOWNER"
          "CAP_FSETID" "CAP_CHOWN" "CAP_SETUID" "CAP_SETGID"
        ];
        NoNewPrivileges = true;
        ProtectSystem = "full";
        PrivateTmp = true;
        PrivateDevices = true;
        PrivateMounts = true;
        ProtectClock = true;
        ProtectControlGroups = true;
        ProtectHostname = true;
        ProtectKernelLogs = true;
        ProtectKernelModules = true;
        ProtectKernelTunables = true;
        ProtectProc = "invisible";
        RestrictAddressFamilies = [ "AF_INET" "AF_INET6" "AF_UNIX" "AF_NETLINK" ];
        RestrictNamespaces = true;
        RestrictRealtime = true;
        LockPersonality = true;
        MemoryDenyWriteExecute = true;
        SystemCallArchitectures = "native";
        SystemCallErrorNumber = "EPERM";
        SystemCallFilter = [
          "@system-service"
          "~@privileged @resources"
          "@chown @setuid prlimit64 setrlimit sched_setaffinity io_uring_setup io_uring_enter io_uring_register"
          "fanotify_init fanotify_mark quotactl_fd capset seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self"
        ];
      };
    };
  };
}
