from tests.unit.control import control as control
from tests.unit.control import control_database as control_database
from tests.unit.control import databases as databases
from tests.unit.services.compute.fleet import fleet as fleet
from tests.unit.services.compute.fleet import new_databases as new_databases
