"""Labs that other systems lend, as inventories: CloudLab, FABRIC, Chameleon and EnOSlib (docs/physical.md)."""
